"""Interrupts tasks that should stop: once, and again while they still run."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping, Sequence

from tampu.worker.current import Current

log = logging.getLogger("tampu.worker")
_AGAIN_SECONDS = 5.0
"""A function may need a moment to clean up. One that still runs after this is interrupted again, and later again."""


class Stopper:
    def __init__(self, held: Mapping[str, Current]) -> None:
        self._held = held
        self._lock = threading.Lock()
        self._interrupted: dict[str, tuple[float, float]] = {}
        """(first interrupt, next interrupt), by receipt."""

    def stop(self, receipts: Sequence[str], why: str) -> None:
        """Callable from any thread. The first reason stays."""
        for receipt in receipts:
            work = self._held.get(receipt)
            if work is not None and self._is_first(work, why):
                log.warning("%s %s: %s", work.task.name, work.id, why)
                self._interrupt(receipt, work, time.monotonic())

    def repeat(self) -> None:
        """Interrupt tasks that still run once more, if it is time."""
        now = time.monotonic()
        for receipt, (first, at) in list(self._interrupted.items()):
            work = self._held.get(receipt)
            if work is None:
                self._interrupted.pop(receipt, None)
            elif at <= now:
                self._interrupt(receipt, work, first)

    def _is_first(self, work: Current, why: str) -> bool:
        with self._lock:
            if work._stop is not None:
                return False
            work._stop = why
            return True

    def _interrupt(self, receipt: str, work: Current, first: float) -> None:
        now = time.monotonic()
        self._interrupted[receipt] = (first, now + max(_AGAIN_SECONDS, now - first))
        if work._pool is not None:
            work._pool.interrupt(work)
