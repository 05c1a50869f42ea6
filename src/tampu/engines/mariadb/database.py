"""A MariaDB connection for `tampu.engines.sql`: runs statements and operations (several statements) by name."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from tampu.engines.mariadb.ops import snapshot, table
from tampu.engines.mariadb.wire import Rows, Wire

OPERATIONS = table.OPERATIONS | snapshot.OPERATIONS


class Db(Wire):
    """See `tampu.engines.sql.db.Db`."""

    def ahead(self, name: str, *parameters: Any) -> Callable[[], Rows]:
        operation = OPERATIONS.get(name)
        return self.ask(name, *parameters).get if operation is None else operation(self, *parameters)

    def rows(self, name: str, *parameters: Any) -> Rows:
        if self._together:
            return self.ahead(name, *parameters)()
        with self.together():
            return self.ahead(name, *parameters)()

    def row(self, name: str, *parameters: Any) -> Any:
        rows = self.rows(name, *parameters)
        return rows[0] if rows else None

    def value(self, name: str, *parameters: Any) -> Any:
        row = self.row(name, *parameters)
        if row is None:
            return None
        (value,) = row
        return value

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

    def begin(self, now: int | None, *, numbers: bool, due: bool) -> Callable[[], Any]:
        self.say(b"START TRANSACTION")
        begun = self.ask("begin", now, numbers, due)
        stale = None if self.index is None else self.ask("is_index_stale")

        def fetch() -> Any:
            ((text,),) = begun.get()
            now, *rest = (int(part) if part else None for part in text.split(" "))
            self.now = now or 0
            self.stale = stale is not None and stale.get() != [(0,)]
            number, delay, lease, expiry, *_ = (*rest, None, None, None)
            return now, number, delay, lease, expiry

        return fetch

    def begin_reading(self) -> None:
        self.say(b"SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        self.say(b"START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")

    def patient(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()  # the driver has one timeout for all statements

    def rollback(self) -> None:
        self.say(b"ROLLBACK")
