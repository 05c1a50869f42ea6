"""Something that is done every so often, by a thread of its own, while there is work.

Not by the event loop, which a task may block; and not for longer than there is work, so that an idle worker sleeps.
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
        """Says whether it wants to be called again, without being woken."""
        self._work = threading.Event()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def wake(self) -> None:
        if not self._work.is_set():
            self._work.set()

    def close(self, patience: float) -> None:
        """It may be waiting for a store that does not answer: then it is left behind."""
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
            except Exception:  # timeouts and signs of life must not end with it
                log.exception("%s goes on after an error", self._thread.name)
                more = True
            if more:
                self._work.set()
            self._closed.wait(self._seconds)
