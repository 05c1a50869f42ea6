"""Connections for reading: a few, kept, lent to one caller at a time.

Not a pool of a library: psycopg's has four threads of its own per open store, which is more than the whole engine has,
and they do not survive a fork. What is needed here is a list and a bound.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from tampu.engines.sql.db import Db, Driver
from tampu.model.errors import Unavailable

R = TypeVar("R")
MOST = 8
_PATIENCE_SECONDS = 15.0


class ReadPool:
    def __init__(self, driver: Driver, check_usable: Callable[[], None]) -> None:
        self._driver = driver
        self._check_usable = check_usable
        self._idle: list[Db] = []
        self._places = threading.BoundedSemaphore(MOST)

    def ask(self, work: Callable[[Db], R]) -> R:
        """Statements that stand by themselves. Asked again, for a while, when the connection is lost: reading does no
        harm twice."""
        give_up = time.monotonic() + _PATIENCE_SECONDS
        pause, seconds = threading.Event(), 0.02
        while True:
            self._check_usable()
            try:
                with self._one() as db:
                    return work(db)
            except self._driver.error as error:
                self._check_usable()  # it may have been closed meanwhile
                if not self._driver.gone(error) or time.monotonic() + seconds > give_up:
                    raise self._driver.translate(error) from error
            pause.wait(seconds)
            seconds = min(seconds * 2, 1.0)

    def ask_once(self, work: Callable[[Db], R]) -> R:
        """As `ask`, of one moment, over several statements."""

        def in_snapshot(db: Db) -> R:
            with db.together():
                db.begin_reading()
                found = work(db)
                db.say(b"COMMIT")
            return found

        return self.ask(in_snapshot)

    def another(self) -> contextlib.AbstractContextManager[Db]:
        """A second connection, for who is asking already. What goes wrong on it goes wrong with the asking."""
        return self._one()

    @contextlib.contextmanager
    def _one(self) -> Iterator[Db]:
        if not self._places.acquire(timeout=_PATIENCE_SECONDS):
            raise Unavailable(f"{self._driver.shown}: all {MOST} reading connections are busy")
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
            except Unavailable:  # closed meanwhile: whoever comes last closes what is left
                self.close()
        finally:
            self._places.release()

    def _take(self) -> Db:
        """A connection that is alive: one that was cut while it was idle is noticed here."""
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
