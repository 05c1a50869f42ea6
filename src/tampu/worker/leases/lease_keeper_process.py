"""The process that extends a worker's leases. Its standard input is a socket to the worker.

Where leases are long it opens the store when something first has to be extended: a worker of quick tasks never needs
that.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import socket
import threading
import time
from pathlib import Path
from typing import Any

import msgspec

from tampu import store_factory
from tampu.broker.store import Store
from tampu.model.errors import TampuError
from tampu.worker.leases.lease_keeper import _HEAD, Extended, extend, receive
from tampu.worker.leases.lease_timers import LeaseTimers
from tampu.worker.outages import retry_after

_LONG_SECONDS = 10.0
_OWN_STAT = Path("/proc/self/stat")


class Keeping:
    def __init__(self, hello: dict[str, Any], worker: socket.socket) -> None:
        self._hello = hello
        self._worker = worker
        self._lease: float = hello["lease"]
        self._patience: float | None = hello["patience"]
        self._stat = Path(f"/proc/{hello['pid']}/stat")
        self._timers = LeaseTimers(self._lease)
        self._heard = time.monotonic()
        self._stopped = False
        self._failing = False
        self._q: Store | None = None

    def take(self, message: Any) -> None:
        now = self._heard = time.monotonic()
        self._timers.remove(message.get("remove", ()))
        self._timers.add(message.get("add", ()), now)

    def wait(self) -> float | None:
        """Until something is due."""
        at = self._timers.next()
        return None if at is None else max(0.0, at - time.monotonic())

    def turn(self) -> None:
        """Extend what is due."""
        due = self._timers.due(time.monotonic())
        if not due or not self._may():
            return
        try:
            store = self._store()
        except TampuError as error:
            found = Extended([], [], due, error)
        else:
            found = extend(store, due, self._lease)
        if found.error is not None and not self._failing:
            self._say({"warn": f"leases could not be extended, trying again: {found.error}"})
        self._failing = found.error is not None
        self._timers.again(found.missed, time.monotonic(), retry_after(found.error))
        self._timers.remove(found.lost)
        if found.cancelled or found.lost:
            self._say({"cancelled": found.cancelled, "lost": found.lost})

    def begin(self) -> None:
        """With short leases, opening the store must not wait until the first is due."""
        if self._lease < _LONG_SECONDS:
            with contextlib.suppress(TampuError):  # tried again when something is due, and told then
                self._store()
        self._say({"up": True})

    def _store(self) -> Store:
        if self._q is None:
            self._q = store_factory.open(self._hello["url"], maintenance=False, **self._hello["options"])
        return self._q

    def _may(self) -> bool:
        """Does the worker run, as far as anybody can tell from outside?"""
        silent = time.monotonic() - self._heard
        if self._patience is not None and silent > self._patience:
            return False
        try:
            state = self._stat.read_text().rpartition(")")[2].split()[0]
        except OSError:  # the worker is gone; or there is no /proc here, and the socket tells when it goes
            return not _OWN_STAT.exists()
        return state not in ("T", "t", "Z", "X")

    def _say(self, message: Any) -> None:
        raw = msgspec.msgpack.encode(message)
        with contextlib.suppress(OSError):  # the worker is gone; so are we, in a moment
            self._worker.sendall(_HEAD.pack(len(raw)) + raw)

    def close(self) -> None:
        if self._q is not None:
            self._q.close()


def main() -> None:
    for ignored in (signal.SIGINT, signal.SIGTERM):  # it lives as long as its worker, which may have work to finish
        signal.signal(ignored, signal.SIG_IGN)
    worker = socket.socket(fileno=os.dup(0))
    with worker, worker.makefile("rb") as stream:
        hello = receive(stream)
        if hello is None:
            return
        inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()

        def hear() -> None:
            while (message := receive(stream)) is not None:
                inbox.put(message)
            inbox.put(None)

        threading.Thread(target=hear, daemon=True).start()
        keeping = Keeping(hello, worker)
        keeping.begin()
        while True:
            try:
                message = inbox.get(timeout=keeping.wait())
            except queue.Empty:
                keeping.turn()
                continue
            if message is None:
                break
            keeping.take(message)
            if keeping.wait() == 0.0:
                keeping.turn()
        keeping.close()


if __name__ == "__main__":
    main()
