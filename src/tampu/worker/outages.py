"""When the store is gone: said once, asked again with growing pauses, and said when it is back."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from tampu.model.chance import CHANCE
from tampu.model.errors import RateLimited, StorageError, TampuError

R = TypeVar("R")
log = logging.getLogger("tampu.worker")
_FIRST_SECONDS = 0.05
_LONGEST_SECONDS = 5.0
AWAY = (StorageError, RateLimited)
"""The store can not be used now, and the same may be asked of it later."""


def retry_after(error: TampuError | None) -> float:
    """Seconds that the store wants to be left alone; 0: it has not said."""
    return (error.retry_after or 0.0) if isinstance(error, RateLimited) else 0.0


class Outages:
    """Shared by all who talk to the store for a worker."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._since: float | None = None
        self.count = 0

    @property
    def down(self) -> bool:
        return self._since is not None

    def through(self, ask: Callable[[], R], give_up: threading.Event) -> R | None:
        """The answer, when the store gives one; None when ``give_up`` is set before."""
        pause = _FIRST_SECONDS
        while True:
            try:
                answer = ask()
            except AWAY as error:
                if give_up.is_set():
                    return None
                self._failed(error)
                wait = max(pause * (0.5 + CHANCE.random() / 2), retry_after(error))
                give_up.wait(wait)  # one more try then, at the very end
                pause = min(_LONGEST_SECONDS, pause * 2)
            else:
                if self._since is not None:
                    self._back()
                return answer

    def _failed(self, error: Exception) -> None:
        with self._lock:
            if self._since is not None:
                return
            self._since = time.monotonic()
            self.count += 1
        log.warning("the store can not be used, trying again: %s", error)

    def _back(self) -> None:
        with self._lock:
            if self._since is None:
                return
            seconds, self._since = time.monotonic() - self._since, None
        log.warning("the store is back after %.1f s", seconds)
