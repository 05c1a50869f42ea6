"""A MariaDB connection for `tampu.engines.sql`: runs statements and operations by name, several in one round trip.

The text protocol takes several statements in one packet and returns a result for each. So statements inside `together`
are joined into one text, which is sent when a result is needed: a commit takes two round trips. A user's connection may
not allow several statements in one packet; there each one is sent alone.
"""

from __future__ import annotations

import contextlib
import select
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pymysql
from pymysql.constants import CLIENT, FIELD_TYPE
from pymysql.cursors import Cursor

from tampu.engines.mariadb.index import Index, Place
from tampu.engines.mariadb.ops import OPERATIONS
from tampu.engines.mariadb.ops.common import Rows, start
from tampu.engines.mariadb.templates import Quote, escaped, in_hex, statements
from tampu.engines.sql import db as sql_db
from tampu.engines.sql.db import Blobs, Ints, Uuids, Values

_IDLE_SECONDS = 1.0
"""A connection that was idle for longer is checked before use."""
DECODERS: dict[Any, Any] = {
    **dict.fromkeys((FIELD_TYPE.TINY, FIELD_TYPE.SHORT, FIELD_TYPE.LONG, FIELD_TYPE.LONGLONG, FIELD_TYPE.INT24), int),
    **dict.fromkeys((FIELD_TYPE.DECIMAL, FIELD_TYPE.NEWDECIMAL), int),  # sums of numbers
    **dict.fromkeys((FIELD_TYPE.FLOAT, FIELD_TYPE.DOUBLE), float),
}

_KINDS: dict[str, type[Ints | Blobs]] = {"i": Ints, "b": Blobs, "u": Uuids}


def _as_columns(parameters: Sequence[Any]) -> list[Any]:
    """The parameters of a statement, with rows of values as columns."""
    found: list[Any] = []
    for value in parameters:
        if type(value) is Values:
            found += [_KINDS[kind](column) for kind, column in value.columns()]
        else:
            found.append(value)
    return found


class Answer:
    """The future result of a statement."""

    __slots__ = ("_db", "left", "rows")

    def __init__(self, db: Db, left: int) -> None:
        self._db = db
        self.left = left
        """Number of results that have not arrived yet."""
        self.rows: Rows = []

    def get(self) -> Rows:
        if self.left:
            self._db.flush()
        return self.rows


class Db(sql_db.ServerDb):
    """See `tampu.engines.sql.db.Db`."""

    def __init__(self, connection: pymysql.Connection[Any], database: str, *, ours: bool, most_bytes: int) -> None:
        self.connection = connection
        self.ours = ours
        """True if the session is the engine's: its settings are known and stay."""
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
        """The time of the current commit."""
        self.short_lock_timeout = False
        """A sweep has shortened the session's lock timeout."""
        self.index: Index | None = None
        """The index in Redis, if this connection may use it."""
        self.stale_statement: str | None = None
        """Name of the statement that marks the index stale, for a connection that does not use the index itself."""
        self.stale = False
        """The index may be incomplete, as of the beginning of this commit."""
        self.entered: list[Place] = []
        self.left: list[Place] = []
        self.offered: list[Place] = []
        """Places that the current commit added to `ready`, removed from it, and got from `Index.offer`."""

    @property
    def closed(self) -> bool:
        return not self.connection.open

    def alive(self) -> bool:
        if self.closed:
            return False
        if time.monotonic() - self._used < _IDLE_SECONDS:
            return True  # if it is not, the first statement fails
        if not self._has_input():
            return True
        try:
            self.connection.ping(reconnect=False)
        except pymysql.Error:
            return False
        return True

    def _has_input(self) -> bool:
        """True if there is input though nothing was sent. Mostly the server has closed the connection."""
        sock: Any = self.connection._sock  # type: ignore[attr-defined]  # missing in PyMySQL's types
        looking = select.poll()
        looking.register(sock, select.POLLIN)
        return bool(looking.poll(0))

    def close(self) -> None:
        if self.connection.open:
            with contextlib.suppress(pymysql.Error, OSError):
                self.connection.close()

    def cursor(self) -> Cursor:
        return self.connection.cursor(Cursor)

    # -- the index in Redis

    def note_ready(self, places: Sequence[Place]) -> None:
        """Messages became ready: note them for the index, which is updated after the commit, or mark it stale."""
        if not places:
            return
        if self.index is not None and self.index.up:
            self.entered.extend(places)
        elif self.index is not None or self.stale_statement == "mark_index_stale":
            self.submit("mark_index_stale")
        elif self.stale_statement is not None:
            self.submit(self.stale_statement, *map(Ints, zip(*places, strict=True)))

    def note_left(self, places: Iterable[Place]) -> None:
        """Messages are no longer ready. If the index is not updated, it proposes them in vain, which does no harm."""
        if self.index is not None:
            self.left.extend(places)

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
                self.close()  # interrupted at an unknown point, such as by Ctrl-C: cannot be used again
            raise
        finally:
            self._together = False

    def submit(self, name: str, *values: Any) -> Answer:
        """Send a named statement, inside `together` with others; `Answer.get` returns its rows."""
        answer = Answer(self, 0)
        for statement in self._texts[name]:
            for text in statement.written(values, self._quote):
                self._send(text, answer)
        if not self._together:
            self.flush()
        return answer

    def command(self, sql: bytes) -> None:
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
        """Send the gathered statements and read their results."""
        if not self._out:
            return
        text, waiting = b";".join(self._out), self._waiting
        self._out, self._size, self._waiting = [], 0, []
        with self._our_decoders(), self.cursor() as cursor:
            cursor.execute(text)  # type: ignore[call-overload]  # bytes are sent unchanged
            for place, answer in enumerate(waiting):
                if place and not cursor.nextset():
                    raise pymysql.InternalError("the server sent too few results")
                if cursor.description is not None:
                    answer.rows.extend(cursor.fetchall())
                answer.left -= 1
        self._used = time.monotonic()

    @contextlib.contextmanager
    def _our_decoders(self) -> Iterator[None]:
        """Use our decoders while we read results: a user's connection may have others."""
        connection: Any = self.connection
        theirs = connection.decoders, connection.use_unicode
        connection.decoders, connection.use_unicode = DECODERS, True
        try:
            yield
        finally:
            connection.decoders, connection.use_unicode = theirs

    # -- by name, also operations of several statements

    def ahead(self, name: str, *parameters: Any) -> Callable[[], Rows]:
        values = _as_columns(parameters)
        operation = OPERATIONS.get(name)
        if operation is None:
            return self.submit(name, *values).get
        begun = operation(self, *values)
        return list if begun is None else start(begun)

    def rows(self, name: str, *parameters: Any) -> Rows:
        if self._together:
            return self.ahead(name, *parameters)()
        with self.together():
            return self.ahead(name, *parameters)()

    def send(self, name: str, *parameters: Any) -> None:
        with self.together():
            rest = self.ahead(name, *parameters)
            if name in OPERATIONS:
                rest()

    def execute(self, sql: str, parameters: Any) -> Any:
        cursor = self.connection.cursor()
        cursor.execute(sql, parameters or None)
        return cursor

    @property
    def active(self) -> bool:
        if self.closed:
            return False
        with self.cursor() as cursor:
            cursor.execute("SELECT @@in_transaction")
            ((inside,),) = cursor.fetchall()
        return bool(int(inside))

    def begin(self, now: int | None, *, numbers: bool, due: bool, synced: bool) -> Callable[[], Any]:  # noqa: ARG002 - the server decides
        self.command(b"START TRANSACTION")
        begun = self.submit("begin", now, numbers, due)
        stale = None if self.index is None else self.submit("is_index_stale")

        def fetch() -> Any:
            ((text,),) = begun.get()
            now, *rest = (int(part) if part else None for part in text.split(" "))
            self.now = now or 0
            self.stale = stale is not None and stale.get() != [(0,)]
            number, delay, lease, expiry, *_ = (*rest, None, None, None)
            return now, number, delay, lease, expiry

        return fetch

    def begin_reading(self) -> None:
        self.command(b"SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        self.command(b"START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")

    def patient(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()  # the driver has one timeout for all statements

    def rollback(self) -> None:
        self.command(b"ROLLBACK")
