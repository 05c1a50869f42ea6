"""A second coalescer for settles, on engines that allow it: claims and acks of workers do not wait for each other.

It costs a connection, which a process that does one thing at a time never needs. So it is opened when a thread first
settles during another commit. From then on all settles of threads go through it.
"""

from __future__ import annotations

import logging
import threading
from typing import Protocol, runtime_checkable

from tampu.broker.commit_queue.coalescer import AttachesClaims, Coalescer, RunsCalls
from tampu.engines.port import Call, Settle
from tampu.model.errors import TampuError

log = logging.getLogger("tampu")


@runtime_checkable
class SettlesInParallel(Protocol):
    """An engine that can settle while it carries out another call."""

    def open_second(self) -> RunsCalls:
        """Open a second connection for settles. The engine closes it when it is closed."""
        ...


class CommitQueues:
    """The coalescers of a store: `main` for all calls, and perhaps a second one for settles of threads."""

    def __init__(self, engine: RunsCalls, waiters: AttachesClaims | None) -> None:
        self.main = Coalescer(engine, waiters)
        self._engine = engine if isinstance(engine, SettlesInParallel) else None
        self._second: Coalescer | None = None
        self._lock = threading.Lock()

    def for_call(self, call: Call) -> Coalescer:
        """The coalescer for a call of a thread."""
        if self._engine is None or not isinstance(call, Settle):
            return self.main
        if self._second is None and self.main.busy:
            self._open()
        return self._second or self.main

    def _open(self) -> None:
        with self._lock:
            if self._second is not None or self._engine is None:
                return
            try:
                second = Coalescer(self._engine.open_second())
            except TampuError as error:
                log.info("no second connection, so settles wait for other calls: %s", error)
                self._engine = None
                return
            second.on_commit = self.main.on_commit  # the same list: listeners may be added later
            self._second = second

    def close(self) -> None:
        self.main.close()
        if self._second is not None:
            self._second.close()
