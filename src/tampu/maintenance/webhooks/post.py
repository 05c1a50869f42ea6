"""One POST to a url that users have given: to a public address, in bounded time, without following redirects.

The name is resolved once, in bounded time, its addresses are checked, and the connection goes to the checked address.
So a name that resolves to another address a moment later reaches nothing else.
"""

from __future__ import annotations

import contextlib
import ipaddress
import queue
import socket
import ssl
import threading
import urllib.parse
from collections.abc import Callable, Mapping
from typing import Any

RESOLVE_SECONDS = 5.0
CONNECT_SECONDS = 5.0
TOTAL_SECONDS = 15.0
_lookups = threading.BoundedSemaphore(16)
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class Refused(Exception):
    """The address must not be called."""


def is_public(address: Address) -> bool:
    """True if the address is reachable from the internet, and does not stand for one that is not."""
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if inner is None and address in _NAT64:
            inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if inner is not None:
            return is_public(inner)
        if address.teredo is not None:
            return False
    return address.is_global and not address.is_multicast


def _lookup(host: str, port: int) -> list[str]:
    """The addresses of a host. The system has no limit of time for it, so it is done in a thread that may be left
    behind. No more of them than this are, however many hosts nobody answers for."""
    if not _lookups.acquire(timeout=RESOLVE_SECONDS):
        raise TimeoutError(f"{host} was not resolved: the resolver does not answer for other hosts")
    done: queue.SimpleQueue[list[Any] | OSError] = queue.SimpleQueue()

    def run() -> None:
        try:
            done.put(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except (OSError, UnicodeError) as error:
            done.put(error if isinstance(error, OSError) else OSError(f"{host} is not a name: {error}"))
        finally:
            _lookups.release()

    threading.Thread(target=run, name="tampu-webhook-lookup", daemon=True).start()
    try:
        found = done.get(timeout=RESOLVE_SECONDS)
    except queue.Empty:
        raise TimeoutError(f"{host} was not resolved within {RESOLVE_SECONDS:g} seconds") from None
    if isinstance(found, OSError):
        raise found
    return [str(address[0]) for *_, address in found]


def resolve(host: str, port: int, *, private: bool) -> str:
    """The address to connect to. Raises `Refused` if one of the host's addresses is private, unless they may be."""
    addresses = _lookup(host, port)
    for address in addresses:
        if not private and not is_public(ipaddress.ip_address(address.partition("%")[0])):
            raise Refused(f"{host} has the address {address}, which is not public")
    return addresses[0]


def post(
    url: str,
    headers: Mapping[str, str],
    body: bytes,
    *,
    private: bool,
    opened: Callable[[Any], contextlib.AbstractContextManager[Any]],
) -> int:
    """Send the body; the status of the answer, whose body is not read. ``opened`` is called with the connection."""
    from urllib3.connection import HTTPConnection, HTTPSConnection

    parts = urllib.parse.urlsplit(url)
    host, secure = parts.hostname or "", parts.scheme == "https"
    port = parts.port or (443 if secure else 80)
    address = resolve(host, port, private=private)
    connection: HTTPConnection
    if secure:
        context = ssl.create_default_context()
        connection = HTTPSConnection(
            address, port, timeout=CONNECT_SECONDS, ssl_context=context, server_hostname=host, assert_hostname=host
        )
    else:
        connection = HTTPConnection(address, port, timeout=CONNECT_SECONDS)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    named = {**headers, "Host": parts.netloc, "User-Agent": "tampu", "Content-Type": "application/json"}
    timer = threading.Timer(TOTAL_SECONDS, cut, [connection])
    timer.daemon = True
    timer.start()
    try:
        with opened(connection):
            connection.connect()
            connection.sock.settimeout(TOTAL_SECONDS)
            connection.request("POST", path, body=body, headers=named, preload_content=False)
            return connection.getresponse().status
    finally:
        timer.cancel()
        connection.close()


def cut(connection: Any) -> None:
    """End a connection at once, from another thread."""
    sock = connection.sock
    if sock is not None:
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)
