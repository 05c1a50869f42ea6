"""A SQLite connection for `tampu.engines.sql`: runs the statements in `statements/` and operations by name.

In a statement, ``$1``, ``$2``, … are values. A column of values is a JSON list inside ``json_each($1)``; anywhere else
the statement runs once for each row of its columns. The rules have texts as bytes, and the file has them as text:
``text($2)`` decodes a value, ``bytes(m.lane)`` encodes a column of the result. One name may stand for several
statements, each ended by a semicolon at the end of a line; it returns the rows of all of them.
"""

from __future__ import annotations

import contextlib
import re
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

from tampu.engines.encoding import as_json
from tampu.engines.sql import db as sql_db
from tampu.engines.sql.db import Blobs, Ints, Uuids
from tampu.engines.sql.named_statements import load

Rows = list[Any]
_COLUMNS = {Ints, Blobs, Uuids}
_BYTES = "bytes_of"
"""The name of a result column that is encoded."""


class Statement:
    """One statement, with the numbers of its values that are treated specially."""

    def __init__(self, text: str) -> None:
        self._lists = {int(n) - 1 for n in re.findall(r"json_each\(\$(\d+)\)", text)}
        self._texts = {int(n) - 1 for n in re.findall(r"\btext\(\$(\d+)\)", text)}
        text = re.sub(r"\btext\((\$\d+)\)", r"\1", text)
        self._encodes = "bytes(" in text
        text = re.sub(r"\bbytes\(([^()]*)\)", rf"\1 AS {_BYTES}", text)
        self._width = max((int(n) for n in re.findall(r"\$(\d+)", text)), default=0)
        self.sql = re.sub(r"\$(\d+)", r"?\1", text)
        self._encoded: list[int] | None = None

    def run(self, db: sqlite3.Connection, given: Sequence[Any]) -> Rows:
        values, columns = self._bound(given)
        if not columns:
            return self._fetch(db.execute(self.sql, values))
        found: Rows = []
        for row in self._rows(values, columns):
            found += self._fetch(db.execute(self.sql, row))
        return found

    def send(self, db: sqlite3.Connection, given: Sequence[Any]) -> None:
        values, columns = self._bound(given)
        if columns:
            db.executemany(self.sql, self._rows(values, columns))
        else:
            db.execute(self.sql, values)

    def _bound(self, given: Sequence[Any]) -> tuple[list[Any], list[int]]:
        """The values to bind, and the positions of those that are columns. A column of one row is a value."""
        values = list(given[: self._width])
        columns = []
        for n in self._lists:
            values[n] = as_json(values[n])
        for n, value in enumerate(values):
            if type(value) in _COLUMNS:
                if len(value) == 1:
                    (values[n],) = value
                else:
                    columns.append(n)
        for n in self._texts:
            value = values[n]
            if n in columns:
                values[n] = [None if v is None else v.decode() for v in value]
            elif value is not None:
                values[n] = value.decode()
        return values, columns

    @staticmethod
    def _rows(values: list[Any], columns: list[int]) -> Iterator[Sequence[Any]]:
        if len(columns) == len(values):
            yield from zip(*values, strict=True)
            return
        for row in zip(*(values[n] for n in columns), strict=True):
            for n, value in zip(columns, row, strict=True):
                values[n] = value
            yield values

    def _fetch(self, cursor: sqlite3.Cursor) -> Rows:
        rows = cursor.fetchall()
        if not self._encodes or not rows:
            return rows
        if self._encoded is None:
            self._encoded = [n for n, (name, *_) in enumerate(cursor.description) if name == _BYTES]
        for i, row in enumerate(rows):
            changed = list(row)
            for n in self._encoded:
                if row[n] is not None:
                    changed[n] = row[n].encode()
            rows[i] = tuple(changed)
        return rows


@cache
def statements() -> dict[str, list[Statement]]:
    """All statements by name."""
    return {
        name: [Statement(part) for part in re.split(r";\s*(?:\n|\Z)", text) if part.strip()]
        for name, text in load("tampu.engines.sqlite").items()
    }


def sql_of(name: str) -> str:
    """The text of a statement, for code that binds its values as they are: a fraction of the cost of `Db.rows`."""
    (statement,) = statements()[name]
    return statement.sql


@contextlib.contextmanager
def plain_rows(db: sqlite3.Connection) -> Iterator[None]:
    """Rows as tuples and text as str, whatever factories the user has set."""
    made = db.row_factory, db.text_factory
    db.row_factory, db.text_factory = None, str
    try:
        yield
    finally:
        db.row_factory, db.text_factory = made


class Db(sql_db.Db):
    """See `tampu.engines.sql.db.Db`. A commit has the numbers of `tampu_counter` here, and writes them at its end."""

    closed = False

    def __init__(self, connection: sqlite3.Connection, *, check: Callable[[], None] | None = None) -> None:
        self.connection = connection
        self.execute: Callable[..., sqlite3.Cursor] = connection.execute
        self.executemany: Callable[..., sqlite3.Cursor] = connection.executemany
        self.close: Callable[[], None] = connection.close
        self._check = check
        """For a user's connection: raises in a forked process."""
        self._statements = statements()
        self.now = 0
        self.last = 0
        """The last sequence number or position given out."""
        self.offset = 0
        """The end of the journal."""
        self.began = (0, 0)
        """Both, as they were when the commit began."""
        self.trimmed = 0
        """The queue that was trimmed last."""

    @property
    def active(self) -> bool:
        if self._check is not None:
            self._check()
        return self.connection.in_transaction

    def together(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext() if self._check is None else plain_rows(self.connection)

    def rows(self, name: str, *parameters: Any) -> Rows:
        operation = OPERATIONS.get(name)
        if operation is not None:
            rows: Rows = operation(self, *parameters)
            return rows
        found: Rows = []
        for statement in self._statements[name]:
            found += statement.run(self.connection, parameters)
        return found

    def send(self, name: str, *parameters: Any) -> None:
        operation = OPERATIONS.get(name)
        if operation is not None:
            operation(self, *parameters)
            return
        for statement in self._statements[name]:
            statement.send(self.connection, parameters)

    def ahead(self, name: str, *parameters: Any) -> Callable[[], Rows]:
        found = self.rows(name, *parameters)
        return lambda: found

    def command(self, sql: bytes) -> None:
        self.execute(sql.decode())

    def rollback(self) -> None:
        if self.connection.in_transaction:
            self.execute("ROLLBACK")


from tampu.engines.sqlite.operations import OPERATIONS  # noqa: E402 - they use a Db
