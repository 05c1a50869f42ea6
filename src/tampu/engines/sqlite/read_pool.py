"""The connections that read: as many as there are readers at once, kept for the next ones."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class ReadPool:
    def __init__(self, connect: Callable[[], sqlite3.Connection]) -> None:
        self._connect = connect
        self._idle: list[sqlite3.Connection] = []
        self._changed = threading.Condition()
        self._reading = 0
        self._stilled = False
        self._closed = False

    @contextmanager
    def snapshot(self) -> Iterator[sqlite3.Connection]:
        """A connection that sees the file as it is now, whatever is written meanwhile."""
        with self._changed:
            self._changed.wait_for(lambda: not self._stilled)
            self._reading += 1
        try:
            db = self._take() or self._connect()
            try:
                db.execute("BEGIN")
                yield db
                db.execute("COMMIT")
            except BaseException:
                db.close()
                raise
            self._idle.append(db)
        finally:
            with self._changed:
                self._reading -= 1
                self._changed.notify_all()
        if self._closed:  # meanwhile: whoever comes last closes what is left
            self.close_idle()

    def _take(self) -> sqlite3.Connection | None:
        try:
            return self._idle.pop()
        except IndexError:
            return None

    def before_fork(self, give_up: float) -> None:
        """Let nobody begin to read; wait for those who do, up to a time."""
        with self._changed:
            self._stilled = True
            self._changed.wait_for(lambda: not self._reading, max(0.0, give_up - time.monotonic()))

    def go_on(self) -> None:
        with self._changed:
            self._stilled = False
            self._changed.notify_all()

    def close_idle(self) -> None:
        """Those that nobody has: a connection that is closed while another thread reads with it crashes the process."""
        while (db := self._take()) is not None:
            db.close()

    def close(self) -> None:
        self._closed = True
        self.close_idle()
