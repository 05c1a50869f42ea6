"""The sweeper: promotes what is due, reaps leases that ran out, expires what is past its time."""

from __future__ import annotations

from tampu.broker.core import Core
from tampu.engines.port import Sweep, Swept

_STEP = 500


class Sweeper:
    def __init__(self, core: Core) -> None:
        self._core = core

    def sweep(self) -> int | None:
        """Sweep until nothing is due, in bounded steps; when the next thing is."""
        engine = self._core.engine
        next_us = engine.next_due()
        while next_us is not None and next_us <= engine.now():
            swept: Swept = self._core.coalescer.submit(Sweep(_STEP))
            next_us = swept.next_us
        return next_us
