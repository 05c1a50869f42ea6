"""Between processes that share a server: a bell for wake-ups, a seat for the keeper.

The bell is a channel of the house. It may be missed, by a broken connection or a full buffer: who waits also looks by
itself, once a second. The seat is a key that ends by itself when its holder stops renewing it; the token in it keeps a
process that was stopped for a while from renewing the seat of another.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from collections.abc import Callable
from typing import Any

from redis import exceptions

from tampu.engines.redis.node import Lost
from tampu.engines.redis.script_calls import ScriptCall, Writer
from tampu.engines.redis.tags import Tags
from tampu.engines.redis.wire import Wire

LEADER_MS = 5000
_QUIET_SECONDS = 0.002
_RELAXED_SECONDS = 0.025
_AGAIN_SECONDS = 1.0
_LISTEN_SECONDS = 30.0


class Peers:
    def __init__(self, wire: Wire, tags: Tags, write: Writer, *, sharded: bool) -> None:
        self._wire = wire
        self._tags = tags
        self._write = write
        self.token = f"{secrets.randbits(63):x}"
        self._sharded = sharded
        """A channel that only the server of its slot knows, instead of one that all servers of a cluster repeat."""
        self._channel = f"{tags.registry}:bell"
        self._ears: _Listener | None = None
        self._leading = False
        self._renew_at = 0.0

    def notify(self) -> ScriptCall:
        """Wake the others."""
        return ScriptCall(self._tags.registry, ("SPUBLISH" if self._sharded else "PUBLISH", self._channel, self.token))

    def listen(self, heard: Callable[[], bool]) -> None:
        if self._ears is not None:
            self._ears.stop()
        self._ears = _Listener(self._wire, self._tags.registry, self._channel, self.token, heard, sharded=self._sharded)

    def lead(self) -> bool:
        """Stay on the seat, or try to take it; asks nothing while more than half of its time is left."""
        asked = time.monotonic()
        if self._leading and asked < self._renew_at:
            return True
        (reply,) = self._wire.send(
            [self._write.script("acquire_leader", self._tags.registry, self.token, LEADER_MS)], safe=True
        )
        if isinstance(reply, Exception):
            raise reply
        self._leading = bool(reply)
        self._renew_at = asked + LEADER_MS / 2000
        return self._leading

    def close(self) -> None:
        if self._ears is not None:
            self._ears.stop()
        if self._leading:  # somebody may take over at once
            self._wire.send([self._write.script("acquire_leader", self._tags.registry, self.token, 0)], safe=True)


class _Listener:
    """A thread that sleeps until the bell rings, and subscribes anew when its connection is lost."""

    def __init__(
        self, wire: Wire, tag: str, channel: str, own: str, heard: Callable[[], bool], *, sharded: bool
    ) -> None:
        self._wire, self._tag = wire, tag
        self._subscribe = ("SSUBSCRIBE" if sharded else "SUBSCRIBE", channel)
        self._own = own.encode()
        self._heard = heard
        self._stopped = threading.Event()
        self._connection: Any = None
        self._thread = threading.Thread(target=self._run, name="tampu-bell", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                self._sleep()
            except (exceptions.RedisError, OSError, Lost, AttributeError, ValueError):
                # Lost, or closed by `stop` under our hands. What came meanwhile may have been missed.
                if not self._stopped.wait(_AGAIN_SECONDS):
                    self._refresh()
                    self._heard()
            finally:
                self._hang_up()

    def _refresh(self) -> None:
        with contextlib.suppress(exceptions.RedisError, OSError):
            self._wire.route.refresh()

    def _sleep(self) -> None:
        self._connection = self._wire.route.node(self._tag).open()
        self._connection.send_command(*self._subscribe, check_health=False)
        self._connection.read_response()
        asked = False
        while not self._stopped.is_set():
            try:
                message = self._connection.read_response(timeout=_LISTEN_SECONDS, disconnect_on_error=False)
            except exceptions.TimeoutError:
                if asked:
                    raise  # it did not answer: the other side is gone without a word
                asked = True
                self._connection.send_command("PING", check_health=False)
                continue
            asked = False
            if isinstance(message, list) and message[0] == b"sunsubscribe":
                raise exceptions.ConnectionError("the channel has moved to another server")
            if isinstance(message, list) and message[0] in (b"message", b"smessage") and message[2] != self._own:
                anxious = self._heard()
                # Under load the bell rings with every commit; hearing it now and then is enough.
                self._stopped.wait(_QUIET_SECONDS if anxious else _RELAXED_SECONDS)

    def _hang_up(self) -> None:
        known, self._connection = self._connection, None
        if known is not None:
            known.disconnect()

    def stop(self) -> None:
        self._stopped.set()
        known = self._connection
        if known is not None:
            sock = getattr(known, "_sock", None)
            if sock is not None:
                with contextlib.suppress(OSError):
                    sock.shutdown(2)  # wakes the thread out of its read
        if threading.current_thread() is not self._thread:
            self._thread.join()
