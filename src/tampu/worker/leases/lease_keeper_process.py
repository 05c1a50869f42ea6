"""The process that extends a worker's leases. Its standard input is a socket to the worker.

If leases are long, it opens the store only when one has to be extended: a worker of quick tasks never needs that.
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


class LeaseExtender:
    def __init__(self, hello: dict[str, Any], worker: socket.socket) -> None:
        self._hello = hello
        self._worker = worker
        self._lease: float = hello["lease"]
        self._patience: float | None = hello["patience"]
        self._stat = Path(f"/proc/{hello['pid']}/stat")
        self._timers = LeaseTimers(self._lease)
        self._last_message_at = time.monotonic()
        self._stopped = False
        self._failing = False
        self._q: Store | None = None

    def update(self, message: Any) -> None:
        now = self._last_message_at = time.monotonic()
        self._timers.remove(message.get("remove", ()))
        self._timers.add(message.get("add", ()), now)

    def seconds_until_due(self) -> float | None:
        """Seconds until a lease is due; None if there is none."""
        at = self._timers.next()
        return None if at is None else max(0.0, at - time.monotonic())

    def extend_due(self) -> None:
        """Extend the leases that are due."""
        due = self._timers.due(time.monotonic())
        if not due or not self._worker_runs():
            return
        try:
            store = self._store()
        except TampuError as error:
            found = Extended([], [], due, error)
        else:
            found = extend(store, due, self._lease)
        if found.error is not None and not self._failing:
            self._send({"warn": f"leases could not be extended, retrying: {found.error}"})
        self._failing = found.error is not None
        self._timers.retry(found.missed, time.monotonic(), retry_after(found.error))
        self._timers.remove(found.lost)
        if found.cancelled or found.lost:
            self._send({"cancelled": found.cancelled, "lost": found.lost})

    def start(self) -> None:
        """Open the store now if leases are short: opening it may take longer than a lease."""
        if self._lease < _LONG_SECONDS:
            with contextlib.suppress(TampuError):  # tried again, and reported, when a lease is due
                self._store()
        self._send({"up": True})

    def _store(self) -> Store:
        if self._q is None:
            self._q = store_factory.open(self._hello["url"], maintenance=False, **self._hello["options"])
        return self._q

    def _worker_runs(self) -> bool:
        """True if the worker seems to run, as far as this process can see."""
        silent = time.monotonic() - self._last_message_at
        if self._patience is not None and silent > self._patience:
            return False
        try:
            state = self._stat.read_text().rpartition(")")[2].split()[0]
        except OSError:  # the worker has ended; or there is no /proc here, and the socket shows when it ends
            return not _OWN_STAT.exists()
        return state not in ("T", "t", "Z", "X")

    def _send(self, message: Any) -> None:
        raw = msgspec.msgpack.encode(message)
        with contextlib.suppress(OSError):  # the worker has ended, and this process is about to
            self._worker.sendall(_HEAD.pack(len(raw)) + raw)

    def close(self) -> None:
        if self._q is not None:
            self._q.close()


def main() -> None:
    for ignored in (signal.SIGINT, signal.SIGTERM):  # it ends with the worker, which may have tasks to finish
        signal.signal(ignored, signal.SIG_IGN)
    worker = socket.socket(fileno=os.dup(0))
    with worker, worker.makefile("rb") as stream:
        hello = receive(stream)
        if hello is None:
            return
        inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()

        def read() -> None:
            while (message := receive(stream)) is not None:
                inbox.put(message)
            inbox.put(None)

        threading.Thread(target=read, daemon=True).start()
        extender = LeaseExtender(hello, worker)
        extender.start()
        while True:
            try:
                message = inbox.get(timeout=extender.seconds_until_due())
            except queue.Empty:
                extender.extend_due()
                continue
            if message is None:
                break
            extender.update(message)
            if extender.seconds_until_due() == 0.0:
                extender.extend_due()
        extender.close()


if __name__ == "__main__":
    main()
