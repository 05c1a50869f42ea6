"""One server: connections to it, and pipelines over them.

What was sent is never sent again by itself: if the connection breaks before all replies are in, nobody knows what the
server did, and the answer says so. Only what certainly was not carried out (no connection, a script the server does not
know, a server that is still loading) is tried again, for a bounded time.
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

from tampu.engines.redis import scripts
from tampu.engines.redis.script_calls import ScriptCall
from tampu.engines.redis.urls import Place
from tampu.model.errors import StorageError, StorageFull, TampuError, Unavailable

PATIENCE = 5.0
"""Seconds that a server may be away, or still loading, before a call says so."""
try:
    import hiredis

    _pack: Any = hiredis.pack_command
except ImportError:  # the driver works without it, slower
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
    """The connection broke when the commands had been sent."""


class NotTrusted(exceptions.ConnectionError):
    """Nobody vouches for the certificate of the server: asking again is of no use."""


FINAL = (*_REFUSED, NotTrusted)
"""Wrong credentials and certificates do not get better by waiting."""


class Patience:
    """Pauses that grow, until the time is up."""

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


def connection(place: Place, host: str, port: int) -> Any:
    """A connection that is not open yet, and never sends anything twice."""
    options: dict[str, Any] = {
        "host": host,
        "port": port,
        "db": place.db,
        "username": place.username,
        "password": place.password,
        "socket_timeout": place.timeout,
        "socket_connect_timeout": PATIENCE,
        "socket_keepalive": True,
        "retry": Retry(NoBackoff(), 0),
        "protocol": 2,
        "client_name": f"tampu-{os.getpid()}",
    }
    kind: Any = SSLConnection if place.tls else Connection  # the driver has no types
    return kind(**options, **place.tls_options)


class Node:
    """Connections to one address; ``where`` is asked for it each time one is opened."""

    def __init__(self, place: Place, where: Callable[[], tuple[str, int]]) -> None:
        self._place = place
        self._where = where
        self._idle: list[tuple[Any, select.poll]] = []
        self._lock = threading.Lock()
        self._closed = False

    def open(self) -> Any:
        """A new connection, to be kept by the caller."""
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
                known = self._idle.pop()
            if not known[1].poll(0):
                return known
            known[0].disconnect()  # something to read where nothing was asked: the server has closed it
        made = self.open()
        watch = select.poll()
        watch.register(made._sock.fileno(), select.POLLIN | select.POLLHUP | select.POLLERR)
        return made, watch

    def send(self, commands: Sequence[tuple[Any, ...]]) -> Sent:
        """Send commands; the replies are read later. `redis.ConnectionError` says that nothing was sent."""
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
        """Close what is idle, for the server is another one now."""
        with self._lock:
            idle, self._idle = self._idle, []
        for known, _ in idle:
            known.disconnect()

    def close(self) -> None:
        self._closed = True
        self.drop()


def _packed(known: Any, commands: Sequence[tuple[Any, ...]]) -> list[bytes]:
    """Commands as they go over the wire. The driver asks of each argument what it is; hiredis does that in C."""
    if _pack is None:
        packed: list[bytes] = known.pack_commands(commands)
        return packed
    return [b"".join([_pack(command) for command in commands])]


class Sent:
    """Commands on their way; `replies` reads what came of them."""

    def __init__(self, node: Node, known: tuple[Any, select.poll], count: int) -> None:
        self._node, self._known, self._count = node, known, count
        self.clean = False
        """All replies are in, and none is an error."""

    def replies(self) -> list[Any]:
        """A reply for each, or the `ResponseError` that the server gave instead."""
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
        except exceptions.BusyLoadingError as error:  # it answers so to everything: nothing was carried out
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
    """Redis 6.2 tells what a script met as an error of the script, with the text of its own inside. It is met by the
    first write of a script, so nothing was done."""
    found = _SCRIPT_ERROR.match(str(error))
    if found is None:
        return error
    return _KINDS.get(found[2], exceptions.ResponseError)(found[1])


def whole(ask: ScriptCall) -> tuple[Any, ...]:
    """The same ask with the text of its script, for a server that does not know it yet."""
    if ask.command[0] != "EVALSHA":
        return ask.command
    _, known, *rest = ask.command
    return ("EVAL", scripts.by_digest(known), *rest)


def translate(error: Exception, place: Place) -> TampuError:
    """What a server's refusal means to our callers."""
    text = str(error)
    if isinstance(error, exceptions.OutOfMemoryError):
        return StorageFull(
            f"{place} is out of memory, nothing was stored",
            hint="raise maxmemory, or let retention or a purge make room",
        )
    if text.startswith("NOAUTH") or isinstance(error, (*_AWAY, *_REFUSED)):
        return _kept_out(error, place)
    if isinstance(error, exceptions.AskError | exceptions.TryAgainError):
        return _moving(place)
    if isinstance(error, exceptions.ReadOnlyError | exceptions.ClusterDownError):
        return Unavailable(f"{place} takes no writes: {text}", hint="it is failing over, or a replica; try again")
    if isinstance(error, exceptions.ResponseError) and text.startswith(("MISCONF", "NOREPLICAS", "BUSY")):
        return Unavailable(f"{place} takes no writes: {text}")
    made = StorageError(f"{place} could not carry it out: {text}", hint="this is a fault of tampu's, report it")
    made.__cause__ = error
    return made


def _kept_out(error: Exception, place: Place) -> Unavailable:
    if isinstance(error, NotTrusted):
        return Unavailable(
            f"the certificate of {place} is not trusted: {error}",
            hint="is the url right? with a certificate authority of your own, name its file: ?ssl_ca_certs=/path",
        )
    if isinstance(error, _AWAY) and not isinstance(error, _REFUSED):
        return Unavailable(
            f"can not reach {place}: {error}", hint="start the server, or look at the url and the network"
        )
    return Unavailable(
        f"{place} refuses us: {error}", hint="put the user and password into the url, and let the user read and write"
    )


def _moving(place: Place) -> Unavailable:
    if not place.cluster:
        return Unavailable(f"{place} is one server of a cluster", hint="name it with redis+cluster:// in the url")
    return Unavailable(
        f"{place} is moving this queue from one server to another, nothing was done", hint="try again in a moment"
    )


def lost(error: Exception, place: Place) -> Unavailable:
    return Unavailable(
        f"the connection to {place} broke, it may or may not have happened: {error}",
        hint="look before you call again; settling again, or publishing with an idempotency_key, is safe",
    )
