"""Connections for reading: a few, kept, lent to one caller at a time.

Not psycopg's own pool: that has four threads of its own per open store, which is more than the whole engine has, and
they do not survive a fork. What is needed here is a list and a bound.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

import psycopg

from tampu.engines.postgres import connecting
from tampu.engines.postgres.statements import Db
from tampu.model.errors import Unavailable

R = TypeVar("R")
MOST = 8
_PATIENCE_SECONDS = 15.0


class Readers:
    def __init__(self, place: connecting.Target, check_usable: Callable[[], None]) -> None:
        self._place = place
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
            except psycopg.Error as error:
                self._check_usable()  # it may have been closed meanwhile
                if not connecting.gone(error) or time.monotonic() + seconds > give_up:
                    raise connecting.translate(error, self._place) from error
            pause.wait(seconds)
            seconds = min(seconds * 2, 1.0)

    def ask_once(self, work: Callable[[Db], R]) -> R:
        """As `ask`, of one moment, over several statements."""

        def in_snapshot(db: Db) -> R:
            with db.together():
                db.say(b"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
                found = work(db)
                db.say(b"COMMIT")
            return found

        return self.ask(in_snapshot)

    @contextlib.contextmanager
    def _one(self) -> Iterator[Db]:
        if not self._places.acquire(timeout=_PATIENCE_SECONDS):
            raise Unavailable(f"{self._place.shown}: all {MOST} reading connections are busy")
        try:
            db = self._take()
            try:
                yield db
            except BaseException:
                db.connection.close()
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
                return connecting.connect(self._place)
            if _alive(db):
                return db
            db.connection.close()

    def close(self) -> None:
        with contextlib.suppress(IndexError):
            while True:
                self._idle.pop().connection.close()


def _alive(db: Db) -> bool:
    """Without a round trip: a connection that the server has ended is readable, for its end."""
    connection = db.connection
    if connection.closed:
        return False
    try:
        connection.pgconn.consume_input()
    except psycopg.OperationalError:
        return False
    return connection.pgconn.status == psycopg.pq.ConnStatus.OK
