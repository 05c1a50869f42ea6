"""One server: connections to it, and pipelines over them.

Commands that were sent are never sent again automatically: if the connection breaks before all replies are in, nobody
knows what the server did, and the error says so. Only commands that certainly did not run (no connection, unknown
script, server still loading) are retried, for a bounded time.
"""

from __future__ import annotations

import os
import re
import select
import ssl
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from redis import exceptions
from redis.backoff import NoBackoff
from redis.connection import Connection, SSLConnection
from redis.retry import Retry

from tampu.engines.redis.connection import scripts
from tampu.engines.redis.connection.script_calls import ScriptCall
from tampu.engines.redis.connection.urls import ServerUrl
from tampu.model.errors import StorageError, StorageFull, TampuError, Unavailable

PATIENCE = 5.0
"""Seconds that a server may be away, or still loading, before a call fails."""
try:
    import hiredis

    _pack: Any = hiredis.pack_command
except ImportError:  # optional: the driver is slower without it
    _pack = None
_AWAY = (exceptions.ConnectionError, exceptions.TimeoutError, OSError)
_REFUSED = (exceptions.AuthenticationError, exceptions.NoPermissionError)
_SCRIPT_ERROR = re.compile(
    r"Error running script \(call to \w+\): .*: -((OOM|READONLY|MISCONF|NOREPLICAS) .*)", re.DOTALL
)
_KINDS = {"OOM": exceptions.OutOfMemoryError, "READONLY": exceptions.ReadOnlyError}
_FIRST_PAUSE, _LONGEST_PAUSE = 0.01, 0.25
_MOST_IDLE = 16


class Lost(Exception):
    """The connection broke after the commands were sent."""


class NotTrusted(exceptions.ConnectionError):
    """The server's certificate is not trusted. Retrying does not help."""


FINAL = (*_REFUSED, NotTrusted)
"""Errors that waiting does not fix: wrong credentials and certificates."""


class Patience:
    """Retry with growing pauses until the time is up."""

    def __init__(self, seconds: float = PATIENCE) -> None:
        self._until = time.monotonic() + seconds
        self._pause = _FIRST_PAUSE

    def wait(self) -> bool:
        """Pause; False when there is no time left."""
        if time.monotonic() >= self._until:
            return False
        time.sleep(self._pause)
        self._pause = min(self._pause * 2, _LONGEST_PAUSE)
        return True


def connection(url: ServerUrl, host: str, port: int) -> Any:
    """A connection that is not open yet and never retries a command."""
    options: dict[str, Any] = {
        "host": host,
        "port": port,
        "db": url.db,
        "username": url.username,
        "password": url.password,
        "socket_timeout": url.timeout,
        "socket_connect_timeout": PATIENCE,
        "socket_keepalive": True,
        "retry": Retry(NoBackoff(), 0),
        "protocol": 2,
        "client_name": f"tampu-{os.getpid()}",
    }
    kind: Any = SSLConnection if url.tls else Connection  # the driver has no types
    return kind(**options, **url.tls_options)


class Node:
    """Connections to one server. ``where`` returns its address each time a connection is opened."""

    def __init__(self, url: ServerUrl, where: Callable[[], tuple[str, int]]) -> None:
        self._place = url
        self._where = where
        self._idle: list[tuple[Any, select.poll]] = []
        self._lock = threading.Lock()
        self._closed = False

    def open(self) -> Any:
        """A new connection, owned by the caller."""
        made = connection(self._place, *self._where())
        try:
            made.connect()
        except exceptions.ConnectionError as error:
            if isinstance(error.__context__, ssl.SSLCertVerificationError):
                raise NotTrusted(str(error)) from error
            raise
        return made

    def _take(self) -> tuple[Any, select.poll]:
        while True:
            with self._lock:
                if not self._idle:
                    break
                known, watch = self._idle.pop()
            if not watch.poll(0):
                return known, watch
            known.disconnect()  # readable without a request: the server has closed it
        made = self.open()
        watch = select.poll()
        watch.register(made._sock.fileno(), select.POLLIN | select.POLLHUP | select.POLLERR)
        return made, watch

    def send(self, commands: Sequence[tuple[Any, ...]]) -> Sent:
        """Send commands; the replies are read later. Raises `redis.ConnectionError` if nothing was sent."""
        known = self._take()
        try:
            known[0].send_packed_command(_packed(known[0], commands), check_health=False)
        except BaseException as error:
            known[0].disconnect()
            if isinstance(error, exceptions.RedisError | OSError):
                raise Lost(str(error)) from error
            raise
        return Sent(self, known, len(commands))

    def give_back(self, known: tuple[Any, select.poll]) -> None:
        with self._lock:
            if not self._closed and len(self._idle) < _MOST_IDLE:
                self._idle.append(known)
                return
        known[0].disconnect()

    def drop(self) -> None:
        """Close idle connections: the address now belongs to another server."""
        with self._lock:
            idle, self._idle = self._idle, []
        for known, _ in idle:
            known.disconnect()

    def close(self) -> None:
        self._closed = True
        self.drop()


def _packed(known: Any, commands: Sequence[tuple[Any, ...]]) -> list[bytes]:
    """Commands encoded for the wire. hiredis does it in C, which is faster than the driver."""
    if _pack is None:
        packed: list[bytes] = known.pack_commands(commands)
        return packed
    return [b"".join([_pack(command) for command in commands])]


class Sent:
    """Commands that were sent; `replies` reads their replies."""

    def __init__(self, node: Node, known: tuple[Any, select.poll], count: int) -> None:
        self._node, self._known, self._count = node, known, count
        self.clean = False
        """True if all replies were read and none is an error."""

    def replies(self) -> list[Any]:
        """One reply per command; a `ResponseError` where the server refused it."""
        found: list[Any] = []
        read = self._known[0].read_response
        self.clean = True
        try:
            for _ in range(self._count):
                try:
                    found.append(read())
                except exceptions.ResponseError as error:
                    self.clean = False
                    found.append(_inside(error))
        except exceptions.BusyLoadingError as error:  # a loading server refuses every command: nothing was done
            self.clean = False
            self._known[0].disconnect()
            if not found:
                return [error] * self._count
            raise Lost(str(error)) from error
        except BaseException as error:
            self._known[0].disconnect()
            if isinstance(error, exceptions.RedisError | OSError):
                raise Lost(str(error)) from error
            raise
        self._node.give_back(self._known)
        return found


def _inside(error: exceptions.ResponseError) -> exceptions.ResponseError:
    """The error that Redis 6.2 wraps in the text of a script error. It is raised by the first write of a script, so
    nothing was done."""
    match = _SCRIPT_ERROR.match(str(error))
    if match is None:
        return error
    return _KINDS.get(match[2], exceptions.ResponseError)(match[1])


def with_source(call: ScriptCall) -> tuple[Any, ...]:
    """The same command with the script's source, for a server that does not know the script yet."""
    if call.command[0] != "EVALSHA":
        return call.command
    _, digest, *rest = call.command
    return ("EVAL", scripts.by_digest(digest), *rest)


def translate(error: Exception, url: ServerUrl) -> TampuError:
    """The `TampuError` for an error of the server."""
    text = str(error)
    if isinstance(error, exceptions.OutOfMemoryError):
        return StorageFull(
            f"{url} is out of memory, nothing was stored",
            hint="raise maxmemory, or remove messages with retention or a purge",
        )
    if text.startswith("NOAUTH") or isinstance(error, (*_AWAY, *_REFUSED)):
        return _no_access(error, url)
    if isinstance(error, exceptions.AskError | exceptions.TryAgainError):
        return _moving(url)
    if isinstance(error, exceptions.ReadOnlyError | exceptions.ClusterDownError):
        return Unavailable(f"{url} takes no writes: {text}", hint="it is failing over or is a replica; try again")
    if isinstance(error, exceptions.ResponseError) and text.startswith(("MISCONF", "NOREPLICAS", "BUSY")):
        return Unavailable(f"{url} takes no writes: {text}")
    failed = StorageError(f"{url} refused a command: {text}", hint="this is a bug in tampu; please report it")
    failed.__cause__ = error
    return failed


def _no_access(error: Exception, url: ServerUrl) -> Unavailable:
    if isinstance(error, NotTrusted):
        return Unavailable(
            f"the certificate of {url} is not trusted: {error}",
            hint="check the url; for your own certificate authority, add its file: ?ssl_ca_certs=/path",
        )
    if isinstance(error, _AWAY) and not isinstance(error, _REFUSED):
        return Unavailable(f"cannot reach {url}: {error}", hint="start the server, or check the url and the network")
    return Unavailable(
        f"{url} refuses access: {error}",
        hint="put user and password into the url, and allow the user to read and write",
    )


def _moving(url: ServerUrl) -> Unavailable:
    if not url.cluster:
        return Unavailable(f"{url} is one server of a cluster", hint="use redis+cluster:// in the url")
    return Unavailable(
        f"{url} is moving this queue from one server to another, nothing was done", hint="try again in a moment"
    )


def lost(error: Exception, url: ServerUrl) -> Unavailable:
    return Unavailable(
        f"the connection to {url} broke; the call may or may not have happened: {error}",
        hint="check before you repeat the call; repeating a settle, or a publish with an idempotency_key, is safe",
    )
