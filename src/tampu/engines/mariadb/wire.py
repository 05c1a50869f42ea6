"""A connection of PyMySQL as the operations use it: statements by name, sent together where nobody waits.

The text protocol takes several statements in one packet, and answers each. So what is sent `together` is written into
one text, and read when an answer is needed: a commit is two round trips. A transaction of the user's is on a
connection that may not take several: there each statement goes by itself.
"""

from __future__ import annotations

import contextlib
import select
import time
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pymysql
from pymysql.constants import CLIENT, FIELD_TYPE
from pymysql.cursors import Cursor

from tampu.engines.mariadb.index import Index, Place
from tampu.engines.mariadb.templates import Quote, escaped, in_hex, statements

Rows = list[Any]
_IDLE_SECONDS = 1.0
"""A connection that was idle for longer is looked at."""
_BINARY_STRING = 16


def _uuid_or_bytes(raw: bytes | str) -> Any:
    """BINARY(16) is what ids are; nothing else of ours has a fixed length."""
    return UUID(bytes=raw) if isinstance(raw, bytes) and len(raw) == _BINARY_STRING else raw


DECODERS: dict[Any, Any] = {
    **dict.fromkeys((FIELD_TYPE.TINY, FIELD_TYPE.SHORT, FIELD_TYPE.LONG, FIELD_TYPE.LONGLONG, FIELD_TYPE.INT24), int),
    **dict.fromkeys((FIELD_TYPE.DECIMAL, FIELD_TYPE.NEWDECIMAL), int),  # sums of numbers
    **dict.fromkeys((FIELD_TYPE.FLOAT, FIELD_TYPE.DOUBLE), float),
    FIELD_TYPE.STRING: _uuid_or_bytes,
}


class Answer:
    """What a statement will answer."""

    __slots__ = ("_wire", "left", "rows")

    def __init__(self, wire: Wire, left: int) -> None:
        self._wire = wire
        self.left = left
        """Results that are still to come."""
        self.rows: Rows = []

    def get(self) -> Rows:
        if self.left:
            self._wire.flush()
        return self.rows


class Wire:
    """See `tampu.engines.sql.db.Db` for what the operations need of it."""

    def __init__(self, connection: pymysql.Connection[Any], database: str, *, ours: bool, most_bytes: int) -> None:
        self.connection = connection
        self.ours = ours
        """The session is ours alone: what is set in it stays, and it takes several statements at once."""
        self._texts = statements(database)
        self._quote: Quote = escaped if ours else in_hex
        self._several = bool(connection.client_flag & CLIENT.MULTI_STATEMENTS)
        self.most_bytes = most_bytes
        self._together = False
        self._out: list[bytes] = []
        self._size = 0
        self._waiting: list[Answer] = []
        self._used = time.monotonic()
        self.now = 0
        """The time of the commit under way."""
        self.hurried = False
        """The session does not wait for locks as it usually does."""
        self.index: Index | None = None
        """Where we tell what is ready, and are told what to take."""
        self.guest: str | None = None
        """How to say, in the database, that an index which we can not tell lacks something: a statement's name."""
        self.stale = False
        """The index may lack something, as of the beginning of this commit."""
        self.entered: list[Place] = []
        self.left: list[Place] = []
        self.offered: list[Place] = []
        """What the commit under way does to `ready`, and what it was offered."""

    @property
    def closed(self) -> bool:
        return not self.connection.open

    def alive(self) -> bool:
        if self.closed:
            return False
        if time.monotonic() - self._used < _IDLE_SECONDS:
            return True  # if not, that is noticed with the first answer
        if not self._spoken_to():
            return True
        try:
            self.connection.ping(reconnect=False)
        except pymysql.Error:
            return False
        return True

    def _spoken_to(self) -> bool:
        """Is there something to read, though nothing was asked? Mostly that is the end of the connection."""
        sock: Any = self.connection._sock  # type: ignore[attr-defined]  # PyMySQL's types do not tell of it
        looking = select.poll()
        looking.register(sock, select.POLLIN)
        return bool(looking.poll(0))

    def close(self) -> None:
        if self.connection.open:
            with contextlib.suppress(pymysql.Error, OSError):
                self.connection.close()

    def cursor(self) -> Cursor:
        return self.connection.cursor(Cursor)

    # -- sending

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        if self._together:
            yield
            return
        self._together = True
        try:
            yield
            self.flush()
        except BaseException as error:
            self._out, self._size, self._waiting = [], 0, []
            if not isinstance(error, Exception):
                self.close()  # interrupted anywhere: nobody knows what is under way
            raise
        finally:
            self._together = False

    def ask(self, name: str, *values: Any) -> Answer:
        """Send a named statement, `together` with others; its rows are there when they are asked for."""
        answer = Answer(self, 0)
        for statement in self._texts[name]:
            for text in statement.written(values, self._quote):
                self._send(text, answer)
        if not self._together:
            self.flush()
        return answer

    def say(self, sql: bytes) -> None:
        """Send a command of the session: begin, commit, savepoints."""
        self._send(sql, Answer(self, 0))
        if not self._together:
            self.flush()

    def _send(self, text: bytes, answer: Answer) -> None:
        if self._out and (not self._several or self._size + len(text) > self.most_bytes):
            self.flush()
        self._out.append(text)
        self._size += len(text) + 1
        self._waiting.append(answer)
        answer.left += 1

    def flush(self) -> None:
        """Have all that was sent carried out, and read the answers."""
        if not self._out:
            return
        text, waiting = b";".join(self._out), self._waiting
        self._out, self._size, self._waiting = [], 0, []
        with self._ours(), self.cursor() as cursor:
            cursor.execute(text)  # type: ignore[call-overload]  # it takes bytes as they are
            for place, answer in enumerate(waiting):
                if place and not cursor.nextset():
                    raise pymysql.InternalError("an answer is missing")
                if cursor.description is not None:
                    answer.rows.extend(cursor.fetchall())
                answer.left -= 1
        self._used = time.monotonic()

    @contextlib.contextmanager
    def _ours(self) -> Iterator[None]:
        """Users read numbers and dates as they like; while we ask, they are read as we need them."""
        connection: Any = self.connection
        theirs = connection.decoders, connection.use_unicode
        connection.decoders, connection.use_unicode = DECODERS, True
        try:
            yield
        finally:
            connection.decoders, connection.use_unicode = theirs
