"""Settlements beside everything else, on engines that can: a worker's claims and acks need not wait for each other.

A process that does one thing at a time never needs it. The first settlement of a thread that meets a commit under way
opens the second lane, and from then on the settlements of threads go there.
"""

from __future__ import annotations

import logging
import threading
from typing import Protocol, runtime_checkable

from tampu.broker.commit_queue.coalescer import Coalescer, Runs, Takes
from tampu.engines.port import Call, Settle
from tampu.model.errors import TampuError

log = logging.getLogger("tampu")


@runtime_checkable
class TwoCoalescers(Protocol):
    """An engine that can carry out settlements while another call is under way."""

    def beside(self) -> Runs:
        """What does it, until the engine is closed; costs a connection."""
        ...


class Coalescers:
    def __init__(self, engine: Runs, takes: Takes | None) -> None:
        self.main = Coalescer(engine, takes)
        self._sided = engine if isinstance(engine, TwoCoalescers) else None
        self._second: Coalescer | None = None
        self._lock = threading.Lock()

    def of(self, call: Call) -> Coalescer:
        """Where a call of a thread goes."""
        if self._sided is None or not isinstance(call, Settle):
            return self.main
        if self._second is None and self.main.busy:
            self._open()
        return self._second or self.main

    def _open(self) -> None:
        with self._lock:
            if self._second is not None or self._sided is None:
                return
            try:
                second = Coalescer(self._sided.beside())
            except TampuError as error:
                log.info("settlements wait for other calls, there is no second connection: %s", error)
                self._sided = None
                return
            second.on_commit = self.main.on_commit  # the same list: who wants to hear of commits may come later
            self._second = second

    def close(self) -> None:
        self.main.close()
        if self._second is not None:
            self._second.close()
