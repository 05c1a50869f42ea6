"""Work that is to stop is told so: once, and again while it goes on all the same."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping, Sequence

from tampu.worker.current import Current

log = logging.getLogger("tampu.worker")
_AGAIN_SECONDS = 5.0
"""A function that was told may need a moment to clean up. One that goes on for longer is told once more, and later."""


class Stopper:
    def __init__(self, held: Mapping[str, Current]) -> None:
        self._held = held
        self._lock = threading.Lock()
        self._told: dict[str, tuple[float, float]] = {}
        """(when it was told first, when to tell it again), by receipt."""

    def stop(self, receipts: Sequence[str], why: str) -> None:
        """From any thread. Who was told for another reason before stays with that one."""
        for receipt in receipts:
            work = self._held.get(receipt)
            if work is not None and self._is_first(work, why):
                log.warning("%s %s: %s", work.task.name, work.id, why)
                self._tell(receipt, work, time.monotonic())

    def again(self) -> None:
        """Tell those that still run, now and then."""
        now = time.monotonic()
        for receipt, (first, at) in list(self._told.items()):
            work = self._held.get(receipt)
            if work is None:
                self._told.pop(receipt, None)
            elif at <= now:
                self._tell(receipt, work, first)

    def _is_first(self, work: Current, why: str) -> bool:
        with self._lock:
            if work._stop is not None:
                return False
            work._stop = why
            return True

    def _tell(self, receipt: str, work: Current, first: float) -> None:
        now = time.monotonic()
        self._told[receipt] = (first, now + max(_AGAIN_SECONDS, now - first))
        if work._pool is not None:
            work._pool.interrupt(work)
