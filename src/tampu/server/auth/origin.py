"""Where a browser's request comes from.

A key in a header is only there when its owner put it there. A session, and a server without auth, are at the disposal
of whatever page the browser shows: so it is asked which one sent the request, and by which name it reached us.
"""

from __future__ import annotations

import functools
import ipaddress
import urllib.parse
from collections.abc import Mapping

from tampu.model.errors import Forbidden

Headers = Mapping[bytes, bytes]
_OURS = (b"same-origin", b"none")
"""What browsers say of requests of our own pages, and of those that a person typed."""


def check_site(headers: Headers) -> None:
    """Refuse what a page of another site sends; who is no browser says nothing of it."""
    origin = headers.get(b"origin")
    ours = origin is None or origin.partition(b"//")[2].lower() == headers.get(b"host", b"").lower()
    if not ours or headers.get(b"sec-fetch-site", b"same-origin") not in _OURS:
        raise Forbidden("this was sent from another site", field="origin", hint="send Authorization: Bearer with a key")


def came_encrypted(headers: Headers) -> bool:
    """Did the browser come by https, up to a proxy?

    That one says so, or the browser. Only the caller's own cookie depends on it: nothing is gained by a lie.
    """
    return headers.get(b"x-forwarded-proto") == b"https" or headers.get(b"origin", b"").startswith(b"https://")


def check_local(headers: Headers) -> None:
    """Refuse who comes by another name than this machine's own: a site can give any name the address of loopback."""
    host = headers.get(b"host")
    if host is not None and not names_loopback(host):
        raise Forbidden(
            f"without auth this server has no name {host.decode('latin-1')!r:.150}",
            field="host",
            hint="use localhost or 127.0.0.1, or turn auth on",
        )


@functools.lru_cache(1000)
def names_loopback(host: bytes) -> bool:
    try:
        name = urllib.parse.urlsplit(f"//{host.decode('latin-1')}").hostname or ""
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
