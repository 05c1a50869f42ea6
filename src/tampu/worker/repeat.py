"""Call a function at an interval, in a thread of its own, while there is work.

The event loop is not used, because a task may block it. Without work the thread sleeps.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

log = logging.getLogger("tampu.worker")


class Repeat:
    def __init__(self, name: str, seconds: float, act: Callable[[], bool]) -> None:
        self._seconds = seconds
        self._act = act
        """Returns True to be called again without `wake`."""
        self._work = threading.Event()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def wake(self) -> None:
        if not self._work.is_set():
            self._work.set()

    def close(self, patience: float) -> None:
        """Wait at most this long for the thread: it may wait for a store that does not answer."""
        self._closed.set()
        self._work.set()
        self._thread.join(patience)

    def _run(self) -> None:
        while True:
            self._work.wait()
            if self._closed.is_set():
                return
            self._work.clear()
            try:
                more = self._act()
            except Exception:  # timeouts and lease extensions must go on
                log.exception("%s continues after an error", self._thread.name)
                more = True
            if more:
                self._work.set()
            self._closed.wait(self._seconds)
