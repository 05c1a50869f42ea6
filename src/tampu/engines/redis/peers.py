"""Between processes that share a store: wake-ups, and who is the leader.

A wake-up is a message on a channel of the store. It may get lost with a broken connection or a full buffer, so waiters
also poll once a second. The leader holds a key that expires unless it is renewed. The token in the key keeps a process
that was suspended for a while from renewing the key of another.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from collections.abc import Callable
from typing import Any

from redis import exceptions

from tampu.engines.redis.connection.node import Lost
from tampu.engines.redis.connection.script_calls import ScriptCall, Writer
from tampu.engines.redis.connection.wire import Wire
from tampu.engines.redis.tags import Tags

LEADER_MS = 5000
_QUIET_SECONDS = 0.002
_RELAXED_SECONDS = 0.025
_RETRY_SECONDS = 1.0
_LISTEN_SECONDS = 30.0


class Peers:
    def __init__(self, wire: Wire, tags: Tags, write: Writer, *, sharded: bool) -> None:
        self._wire = wire
        self._tags = tags
        self._write = write
        self.token = f"{secrets.randbits(63):x}"
        self._sharded = sharded
        """Use a sharded channel, which only the server of its slot delivers, not all servers of the cluster."""
        self._channel = f"{tags.registry}:bell"
        self.wake_others = ScriptCall(tags.registry, ("SPUBLISH" if sharded else "PUBLISH", self._channel, self.token))
        """The command that wakes the other processes."""
        self._listener: _Listener | None = None
        self._leading = False
        self._renew_at = 0.0

    def listen(self, on_wakeup: Callable[[], bool]) -> None:
        if self._listener is not None:
            self._listener.stop()
        self._listener = _Listener(
            self._wire, self._tags.registry, self._channel, self.token, on_wakeup, sharded=self._sharded
        )

    def lead(self) -> bool:
        """True if this process is the leader. Asks the server only after half of the lease time."""
        asked_at = time.monotonic()
        if self._leading and asked_at < self._renew_at:
            return True
        (reply,) = self._wire.send(
            [self._write.script("acquire_leader", self._tags.registry, self.token, LEADER_MS)], safe=True
        )
        if isinstance(reply, Exception):
            raise reply
        self._leading = bool(reply)
        self._renew_at = asked_at + LEADER_MS / 2000
        return self._leading

    def close(self) -> None:
        if self._listener is not None:
            self._listener.stop()
        if self._leading:  # so that another process can take over at once
            self._wire.send([self._write.script("acquire_leader", self._tags.registry, self.token, 0)], safe=True)


class _Listener:
    """A thread that waits for wake-ups and subscribes again when its connection is lost."""

    def __init__(
        self, wire: Wire, tag: str, channel: str, own: str, on_wakeup: Callable[[], bool], *, sharded: bool
    ) -> None:
        self._wire, self._tag = wire, tag
        self._subscribe = ("SSUBSCRIBE" if sharded else "SUBSCRIBE", channel)
        self._own = own.encode()
        self._on_wakeup = on_wakeup
        self._stopped = threading.Event()
        self._connection: Any = None
        self._thread = threading.Thread(target=self._run, name="tampu-wakeup", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                self._wait_for_wakeups()
            except (exceptions.RedisError, OSError, Lost, AttributeError, ValueError):
                # The connection was lost, or `stop` closed it. Wake-ups may have been missed meanwhile.
                if not self._stopped.wait(_RETRY_SECONDS):
                    self._refresh()
                    self._on_wakeup()
            finally:
                self._disconnect()

    def _refresh(self) -> None:
        with contextlib.suppress(exceptions.RedisError, OSError):
            self._wire.route.refresh()

    def _wait_for_wakeups(self) -> None:
        self._connection = self._wire.route.node(self._tag).open()
        self._connection.send_command(*self._subscribe, check_health=False)
        self._connection.read_response()
        pinged = False
        while not self._stopped.is_set():
            try:
                message = self._connection.read_response(timeout=_LISTEN_SECONDS, disconnect_on_error=False)
            except exceptions.TimeoutError:
                if pinged:
                    raise  # no answer to PING: the server is gone
                pinged = True
                self._connection.send_command("PING", check_health=False)
                continue
            pinged = False
            kind, *_, sender = message if isinstance(message, list) else (None, None)
            if kind == b"sunsubscribe":
                raise exceptions.ConnectionError("the channel has moved to another server")
            if kind in (b"message", b"smessage") and sender != self._own:
                waiting = self._on_wakeup()
                # Under load every commit sends a wake-up; reacting now and then is enough.
                self._stopped.wait(_QUIET_SECONDS if waiting else _RELAXED_SECONDS)

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.disconnect()

    def stop(self) -> None:
        self._stopped.set()
        connection = self._connection
        if connection is not None:
            sock = getattr(connection, "_sock", None)
            if sock is not None:
                with contextlib.suppress(OSError):
                    sock.shutdown(2)  # wakes the thread out of its read
        if threading.current_thread() is not self._thread:
            self._thread.join()
