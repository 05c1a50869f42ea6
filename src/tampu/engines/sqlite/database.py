"""A SQLite connection for `tampu.engines.sql`: runs the statements in `statements/` and operations by name.

In a statement, ``$1``, ``$2``, … are values. A column of numbers is a JSON list inside ``json_each($1)``. With rows of
values, which come last, the statement runs once for each row. The rules have texts as bytes, and the file has them as
text: statements cast them. One name may stand for several statements, each ended by a semicolon at the end of a line;
it returns the rows of all of them.
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
from tampu.engines.sql.db import Values
from tampu.engines.sql.named_statements import load

Rows = list[Any]


class Statement:
    """One statement, with the positions of its values that are JSON lists."""

    def __init__(self, text: str) -> None:
        self._lists = sorted({int(n) - 1 for n in re.findall(r"json_each\(\$(\d+)\)", text)})
        self._width = max((int(n) for n in re.findall(r"\$(\d+)", text)), default=0)
        self.sql = re.sub(r"\$(\d+)", r"?\1", text)

    def bound(self, given: Sequence[Any]) -> list[Sequence[Any]]:
        """The values of each run of the statement. The last ones may not occur in it."""
        width = self._width
        if given and type(given[-1]) is Values:
            *same, values = given
            if len(values.rows) == 1:
                return [(*same, *values.rows[0])[:width]]
            return [(*same, *row)[:width] for row in values.rows]
        if not self._lists:
            return [given[:width]]
        lists = list(given[:width])
        for n in self._lists:
            lists[n] = as_json(lists[n])
        return [lists]


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
            for values in statement.bound(parameters):
                found += self.execute(statement.sql, values).fetchall()
        return found

    def send(self, name: str, *parameters: Any) -> None:
        operation = OPERATIONS.get(name)
        if operation is not None:
            operation(self, *parameters)
            return
        for statement in self._statements[name]:
            bound = statement.bound(parameters)
            if len(bound) == 1:
                self.execute(statement.sql, bound[0])
            else:
                self.executemany(statement.sql, bound)

    def ahead(self, name: str, *parameters: Any) -> Callable[[], Rows]:
        found = self.rows(name, *parameters)
        return lambda: found

    def command(self, sql: bytes) -> None:
        self.execute(sql.decode())

    def rollback(self) -> None:
        if self.connection.in_transaction:
            self.execute("ROLLBACK")


from tampu.engines.sqlite.operations import OPERATIONS  # noqa: E402 - they use a Db
