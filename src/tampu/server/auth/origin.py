"""Protection against requests that another web site makes a browser send (CSRF, DNS rebinding).

Only the owner of a key can put it into a header. But any page can make the browser send a session cookie, or call a
server without auth. So these requests are checked for the site they come from and the host name they use.
"""

from __future__ import annotations

import functools
import ipaddress
import re
from collections.abc import Mapping

from tampu.model.errors import Forbidden

Headers = Mapping[bytes, bytes]
_HOST = re.compile(rb"(localhost|[0-9.]{1,15}|\[[0-9a-f:.]{1,45}\])(?::[0-9]{1,5})?\Z", re.IGNORECASE)
"""A name and perhaps a port; nothing else, such as a user in front of it."""
_FORWARDED = frozenset({b"forwarded", b"via", b"x-real-ip", b"x-original-host", b"x-original-forwarded-for"})
_OURS = (b"same-origin", b"none")
"""Values of Sec-Fetch-Site for requests of our own pages, and for addresses that a person typed."""


def check_site(headers: Headers) -> None:
    """Refuse requests that a page of another site sends. Clients other than browsers do not send these headers."""
    origin = headers.get(b"origin")
    ours = origin is None or origin.partition(b"//")[2].lower() == headers.get(b"host", b"").lower()
    if not ours or headers.get(b"sec-fetch-site", b"same-origin") not in _OURS:
        raise Forbidden(
            "the request comes from another site", field="origin", hint="send Authorization: Bearer with a key"
        )


def came_encrypted(headers: Headers) -> bool:
    """True if the browser used https, as said by a proxy or the browser.

    Nobody gains from a false claim: it only decides the secure flag of the caller's own cookie.
    """
    return headers.get(b"x-forwarded-proto") == b"https" or headers.get(b"origin", b"").startswith(b"https://")


def is_forwarded(headers: Headers) -> bool:
    """True if a proxy has passed the request on: its client may be anywhere, whatever ``Host`` says."""
    return any(name in _FORWARDED or name.startswith(b"x-forwarded-") for name in headers)


def is_local(headers: Headers) -> bool:
    """True if the request was sent to a name of this machine, and not through a proxy."""
    return names_loopback(headers.get(b"host", b"localhost")) and not is_forwarded(headers)


def check_local(headers: Headers) -> None:
    """Refuse requests to a host name other than loopback: any site can point its own name at 127.0.0.1."""
    if is_forwarded(headers):
        raise Forbidden(
            "a server without auth cannot be reached through a proxy",
            field="host",
            hint="turn auth on, or go around it",
        )
    host = headers.get(b"host")
    if host is not None and not names_loopback(host):
        raise Forbidden(
            f"a server without auth cannot be reached as {host.decode('latin-1')!r:.150}",
            field="host",
            hint="use localhost or 127.0.0.1, or turn auth on",
        )


@functools.lru_cache(1000)
def names_loopback(host: bytes) -> bool:
    found = _HOST.match(host)
    if found is None:
        return False
    name = found[1].decode().strip("[]").lower()
    try:
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
