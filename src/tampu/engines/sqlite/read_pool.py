"""Connections for reading: one for each concurrent reader, kept for reuse."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tampu.engines.sqlite.database import Db


class ReadPool:
    def __init__(self, connect: Callable[[], Db]) -> None:
        self._connect = connect
        self._idle: list[Db] = []
        self._changed = threading.Condition()
        self._reading = 0
        self._paused = False
        self._closed = False

    @contextmanager
    def snapshot(self) -> Iterator[Db]:
        """A connection that sees the file as it is now, without later writes."""
        with self._changed:
            self._changed.wait_for(lambda: not self._paused)
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
        if self._closed:  # while we were reading: the last reader closes what is left
            self.close_idle()

    def _take(self) -> Db | None:
        try:
            return self._idle.pop()
        except IndexError:
            return None

    def before_fork(self, give_up: float) -> None:
        """Stop new reads and wait for running ones, until ``give_up``."""
        with self._changed:
            self._paused = True
            self._changed.wait_for(lambda: not self._reading, max(0.0, give_up - time.monotonic()))

    def after_fork_parent(self) -> None:
        with self._changed:
            self._paused = False
            self._changed.notify_all()

    def close_idle(self) -> None:
        """Only idle connections: closing one while another thread reads with it crashes the process."""
        while (db := self._take()) is not None:
            db.close()

    def close(self) -> None:
        self._closed = True
        self.close_idle()
