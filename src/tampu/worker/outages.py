"""Outages of the store: log once, retry with growing pauses, log when it is back."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from tampu.model.errors import RateLimited, StorageError, TampuError
from tampu.model.times import CHANCE

R = TypeVar("R")
log = logging.getLogger("tampu.worker")
_FIRST_SECONDS = 0.05
_LONGEST_SECONDS = 5.0
RETRYABLE = (StorageError, RateLimited)
"""The store cannot be used now; the same call may work later."""


def retry_after(error: TampuError | None) -> float:
    """Seconds to wait, as the store asked for; 0 if it did not."""
    return (error.retry_after or 0.0) if isinstance(error, RateLimited) else 0.0


class Outages:
    """Shared by all parts of a worker that call the store."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._since: float | None = None
        self.count = 0

    @property
    def down(self) -> bool:
        return self._since is not None

    def retry(self, call: Callable[[], R], give_up: threading.Event) -> R | None:
        """Call until the store answers. None if ``give_up`` is set first."""
        pause = _FIRST_SECONDS
        while True:
            try:
                answer = call()
            except RETRYABLE as error:
                if give_up.is_set():
                    return None
                self._failed(error)
                wait = max(pause * (0.5 + CHANCE.random() / 2), retry_after(error))
                give_up.wait(wait)  # if it is set meanwhile, one last try follows
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
        log.warning("the store cannot be used, retrying: %s", error)

    def _back(self) -> None:
        with self._lock:
            if self._since is None:
                return
            seconds, self._since = time.monotonic() - self._since, None
        log.warning("the store is back after %.1f s", seconds)
