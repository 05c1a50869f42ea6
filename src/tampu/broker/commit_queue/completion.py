"""Waiting for the end of messages: one thread follows the journal for all who wait here, while anybody does.

What was settled through this store is read at once. What other processes settled is looked for soon at first, and at
most a quarter of a second later when it takes long; a look costs the same however many wait.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from tampu.broker.journal_cursor import JournalCursor
from tampu.engines.port import Engine
from tampu.model.errors import TampuError
from tampu.model.states import has_ended

_FIRST_SECONDS = 0.004
_LAST_SECONDS = 0.25
_GROWTH = 1.25
log = logging.getLogger("tampu")
Tell = Callable[[], None]


class Completion:
    """Tells who waits for a message that it has ended."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lock = threading.Lock()
        self._waiting: dict[tuple[str, str], list[Tell]] = {}
        self._stirred = threading.Event()
        self._pause = _FIRST_SECONDS
        self._reader: threading.Thread | None = None

    @property
    def anybody(self) -> bool:
        return bool(self._waiting)

    def expect(self, tenant: str, id: str, tell: Tell) -> None:
        """Call ``tell`` when the message ends, from now on. Look at it after this, so that no end is missed."""
        with self._lock:
            self._pause = _FIRST_SECONDS
            if self._reader is None:
                cursor = JournalCursor(self._engine)
                self._reader = threading.Thread(target=self._follow, args=(cursor,), name="tampu-ends", daemon=True)
                self._reader.start()
            self._waiting.setdefault((tenant, id), []).append(tell)
        self._stirred.set()

    def forget(self, tenant: str, id: str, tell: Tell) -> None:
        with self._lock:
            line = self._waiting.get((tenant, id), [])
            if tell in line:
                line.remove(tell)
                if not line:
                    del self._waiting[tenant, id]
        if not self._waiting:
            self._stirred.set()

    def stir(self) -> None:
        """Something was settled here: look now."""
        self._pause = _FIRST_SECONDS
        self._stirred.set()

    def close(self) -> None:
        """Tell everybody; the thread ends by itself."""
        with self._lock:
            told = [tell for line in self._waiting.values() for tell in line]
            self._waiting.clear()
            reader = self._reader
        for tell in told:
            tell()
        self._stirred.set()
        if reader is not None and reader is not threading.current_thread():
            reader.join()

    def _follow(self, cursor: JournalCursor) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._reader = None
                    return
            self._stirred.clear()
            try:
                moves = cursor.read()
            except TampuError as error:
                log.warning("waiting for results goes on when the store answers again: %s", error)
                self._stirred.wait(_LAST_SECONDS)
                continue
            ended = [(moved.tenant, moved.id) for moved in moves if has_ended(moved.state)]
            with self._lock:
                told = [tell for place in ended for tell in self._waiting.get(place, ())]
            for tell in told:
                tell()
            if not cursor.more:
                self._stirred.wait(self._pause)
                self._pause = min(_LAST_SECONDS, self._pause * _GROWTH)
