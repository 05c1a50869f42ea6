"""Promotes delayed messages that are due, reaps expired leases, expires messages."""

from __future__ import annotations

from tampu.broker.core import Core
from tampu.engines.port import PollStatus, Sweep, Swept

_STEP = 500


class Sweeper:
    def __init__(self, core: Core) -> None:
        self._core = core

    def sweep(self, status: PollStatus | None = None) -> int | None:
        """Sweep in bounded steps until nothing is due. Returns when something is due next."""
        status = status or self._core.engine.poll_status(())
        now, next_us = status.now_us, status.due_us
        while next_us is not None and next_us <= now:
            swept: Swept = self._core.coalescer.submit(Sweep(_STEP))
            now, next_us = self._core.engine.now(), swept.next_us
        return next_us
