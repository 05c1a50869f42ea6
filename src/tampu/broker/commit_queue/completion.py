"""Waiting until messages have ended: while there are waiters, one thread follows the journal for all of them.

It reads at once after this process has settled something. For settlements of other processes it polls: soon at first,
then less often, at least four times a second. A poll costs the same however many wait.
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
Callback = Callable[[], None]


class Completion:
    """Calls back when a message has ended."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lock = threading.Lock()
        self._waiting: dict[tuple[str, str], list[Callback]] = {}
        self._wake_up = threading.Event()
        self._pause = _FIRST_SECONDS
        self._reader: threading.Thread | None = None

    @property
    def anybody(self) -> bool:
        return bool(self._waiting)

    def expect(self, tenant: str, id: str, callback: Callback) -> None:
        """Call ``callback`` when the message ends. Read the message after this: it may have ended before."""
        with self._lock:
            self._pause = _FIRST_SECONDS
            if self._reader is None:
                cursor = JournalCursor(self._engine)
                self._reader = threading.Thread(
                    target=self._follow, args=(cursor,), name="tampu-completion", daemon=True
                )
                self._reader.start()
            self._waiting.setdefault((tenant, id), []).append(callback)
        self._wake_up.set()

    def forget(self, tenant: str, id: str, callback: Callback) -> None:
        with self._lock:
            line = self._waiting.get((tenant, id), [])
            if callback in line:
                line.remove(callback)
                if not line:
                    del self._waiting[tenant, id]
        if not self._waiting:
            self._wake_up.set()

    def read_now(self) -> None:
        """Read now, because this process has settled something."""
        self._pause = _FIRST_SECONDS
        self._wake_up.set()

    def close(self) -> None:
        """Call back all waiters; then the thread ends."""
        with self._lock:
            callbacks = [callback for line in self._waiting.values() for callback in line]
            self._waiting.clear()
            reader = self._reader
        for callback in callbacks:
            callback()
        self._wake_up.set()
        if reader is not None and reader is not threading.current_thread():
            reader.join()

    def _follow(self, cursor: JournalCursor) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._reader = None
                    return
            self._wake_up.clear()
            try:
                moves = cursor.read()
            except TampuError as error:
                log.warning("cannot read the journal for callers that wait for results, will try again: %s", error)
                self._wake_up.wait(_LAST_SECONDS)
                continue
            ended = [(moved.tenant, moved.id) for moved in moves if has_ended(moved.state)]
            with self._lock:
                callbacks = [callback for place in ended for callback in self._waiting.get(place, ())]
            for callback in callbacks:
                callback()
            if not cursor.more:
                self._wake_up.wait(self._pause)
                self._pause = min(_LAST_SECONDS, self._pause * _GROWTH)
