"""A small pool of connections for reading.

Not psycopg's pool: that starts four threads per open store, more than the whole engine has, and they do not survive a
fork. A list and a bound are enough here.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from tampu.engines.sql.db import Driver, ServerDb
from tampu.model.errors import Unavailable

R = TypeVar("R")
MOST = 8
_PATIENCE_SECONDS = 15.0


class ReadPool:
    def __init__(self, driver: Driver, check_usable: Callable[[], None]) -> None:
        self._driver = driver
        self._check_usable = check_usable
        self._idle: list[ServerDb] = []
        self._slots = threading.BoundedSemaphore(MOST)

    def run(self, work: Callable[[ServerDb], R]) -> R:
        """Run independent statements. Retried for a while if the connection is lost: reads may be repeated."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        pause, seconds = threading.Event(), 0.02
        while True:
            self._check_usable()
            try:
                with self._connection() as db:
                    return work(db)
            except self._driver.error as error:
                self._check_usable()  # it may have been closed meanwhile
                if not self._driver.gone(error) or time.monotonic() + seconds > deadline:
                    raise self._driver.translate(error) from error
            pause.wait(seconds)
            seconds = min(seconds * 2, 1.0)

    def run_in_snapshot(self, work: Callable[[ServerDb], R]) -> R:
        """As `run`, in one snapshot for all statements."""

        def in_snapshot(db: ServerDb) -> R:
            with db.together():
                db.begin_reading()
                found = work(db)
                db.command(b"COMMIT")
            return found

        return self.run(in_snapshot)

    def another(self) -> contextlib.AbstractContextManager[ServerDb]:
        """A second connection for a caller inside `ask`. Its errors are handled by that `ask`."""
        return self._connection()

    @contextlib.contextmanager
    def _connection(self) -> Iterator[ServerDb]:
        if not self._slots.acquire(timeout=_PATIENCE_SECONDS):
            raise Unavailable(f"{self._driver.shown}: all {MOST} reading connections are busy", hint="try again later")
        try:
            db = self._take()
            try:
                yield db
            except BaseException:
                db.close()
                raise
            self._idle.append(db)
            try:
                self._check_usable()
            except Unavailable:  # the engine was closed meanwhile: the last user closes what is left
                self.close()
        finally:
            self._slots.release()

    def _take(self) -> ServerDb:
        """An idle connection that is still alive, or a new one."""
        while True:
            try:
                db = self._idle.pop()
            except IndexError:
                return self._driver.connect()
            if db.alive():
                return db
            db.close()

    def close(self) -> None:
        with contextlib.suppress(IndexError):
            while True:
                self._idle.pop().close()
