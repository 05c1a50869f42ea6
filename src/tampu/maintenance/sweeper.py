"""The sweeper: promotes what is due, reaps leases that ran out, expires what is past its time."""

from __future__ import annotations

from tampu.broker.core import Core
from tampu.engines.port import PollStatus, Sweep, Swept

_STEP = 500


class Sweeper:
    def __init__(self, core: Core) -> None:
        self._core = core

    def sweep(self, told: PollStatus | None = None) -> int | None:
        """Sweep until nothing is due, in bounded steps; when the next thing is."""
        told = told or self._core.engine.poll_status(())
        now, next_us = told.now_us, told.due_us
        while next_us is not None and next_us <= now:
            swept: Swept = self._core.coalescer.submit(Sweep(_STEP))
            now, next_us = self._core.engine.now(), swept.next_us
        return next_us
