"""The process that extends a worker's leases. Its standard input is a socket to the worker.

If leases are long, it opens the store only when one has to be extended: a worker of quick tasks never needs that.
"""

from __future__ import annotations

import contextlib
import functools
import os
import queue
import signal
import socket
import threading
from pathlib import Path
from typing import Any

from tampu import store_factory
from tampu.broker.store import Store
from tampu.model.errors import TampuError
from tampu.worker.leases.lease_extender import LeaseExtender
from tampu.worker.leases.lease_keeper import receive, send

_LONG_SECONDS = 10.0
_OWN_STAT = Path("/proc/self/stat")


class Worker:
    """The worker whose leases are extended: its socket, its store, and whether it still runs."""

    def __init__(self, hello: dict[str, Any], pipe: socket.socket) -> None:
        self._hello = hello
        self._pipe = pipe
        self._stat = Path(f"/proc/{hello['pid']}/stat")
        self._store: Store | None = None

    def start(self) -> None:
        """Open the store now if leases are short: opening it may take longer than a lease."""
        if self._hello["lease"] < _LONG_SECONDS:
            with contextlib.suppress(TampuError):  # tried again, and reported, when a lease is due
                self.store()
        send(self._pipe, {"up": True})

    def store(self) -> Store:
        if self._store is None:
            self._store = store_factory.open(self._hello["url"], maintenance=False, **self._hello["options"])
        return self._store

    def runs(self, silent: float) -> bool:
        """True if it seems to run, as far as this process can see. ``silent``: seconds since its last message."""
        patience = self._hello["patience"]
        if patience is not None and silent > patience:
            return False
        try:
            state = self._stat.read_text().rpartition(")")[2].split()[0]
        except OSError:  # it has ended; or there is no /proc here, and the socket shows when it ends
            return not _OWN_STAT.exists()
        return state not in ("T", "t", "Z", "X")

    def close(self) -> None:
        if self._store is not None:
            self._store.close()


def main() -> None:
    for ignored in (signal.SIGINT, signal.SIGTERM):  # it ends with the worker, which may have tasks to finish
        signal.signal(ignored, signal.SIG_IGN)
    pipe = socket.socket(fileno=os.dup(0))
    with pipe, pipe.makefile("rb") as stream:
        hello = receive(stream)
        if hello is None:
            return
        inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()

        def read() -> None:
            while (message := receive(stream)) is not None:
                inbox.put(message)
            inbox.put(None)

        threading.Thread(target=read, daemon=True).start()
        worker = Worker(hello, pipe)
        worker.start()
        report = functools.partial(send, pipe)
        LeaseExtender(hello["lease"], worker.store, report, worker.runs).serve(inbox)
        worker.close()


if __name__ == "__main__":
    main()
