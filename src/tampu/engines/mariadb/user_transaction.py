"""Joins the user's transaction on a connection of PyMySQL, or of SQLAlchemy on PyMySQL."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pymysql
from pymysql.cursors import Cursor

from tampu.engines.mariadb.database import Db
from tampu.engines.sql.user_transaction import Transaction, check_tail, driver_of
from tampu.model.errors import InvalidState

if TYPE_CHECKING:
    from tampu.engines.mariadb.engine import MariaEngine


@contextlib.contextmanager
def joined(engine: MariaEngine, connection: Any) -> Iterator[Transaction]:
    """Run calls in the user's transaction. If none is open, begin one and commit it at the end of the block."""
    with contextlib.ExitStack() as begun:
        hint = "pymysql.connect(…), or create_engine('mysql+pymysql://…').connect()"
        driver = driver_of(connection, pymysql.Connection, begun, "PyMySQL", hint)
        _begin(driver, begun, user_commits=driver is not connection)
        _check_same_database(engine, driver)
        db = Db(driver, engine.place.database, ours=False, most_bytes=1 << 20)
        db.stale_statement = engine.stale_statement
        yield Transaction(engine, db, notify_queues=True)


def _begin(driver: pymysql.Connection[Any], begun: contextlib.ExitStack, *, user_commits: bool) -> None:
    """Begin a transaction unless one is open. It must be READ COMMITTED, so that look-ups see other commits."""
    with driver.cursor(Cursor) as cursor:
        cursor.execute("SELECT @@in_transaction, @@tx_isolation")
        ((inside, isolation),) = cursor.fetchall()
        if int(inside):
            if isolation not in ("READ-COMMITTED", "READ-UNCOMMITTED"):
                raise InvalidState(
                    f"the open transaction is {isolation}: it does not see what others have committed since it began",
                    hint="SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED before it begins,"
                    " or let q.transaction(connection) begin it",
                )
            return
        cursor.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
        cursor.execute("START TRANSACTION")
    if not user_commits:
        begun.push(_CommitOrRollback(driver))


class _CommitOrRollback(contextlib.AbstractContextManager[None]):
    """Commits the transaction that we began, or rolls it back."""

    def __init__(self, driver: pymysql.Connection[Any]) -> None:
        self._driver = driver

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._driver.commit()
        elif self._driver.open:
            with contextlib.suppress(pymysql.Error):  # the caller needs the first error
                self._driver.rollback()


def _check_same_database(engine: MariaEngine, driver: pymysql.Connection[Any]) -> None:
    try:
        with driver.cursor(Cursor) as cursor:
            cursor.execute(f"SELECT value FROM `{engine.place.database}`.tampu_meta WHERE name = 'tail'")  # noqa: S608 - a checked name
            row = cursor.fetchone()
    except pymysql.Error:
        row = None
    check_tail(row, engine, engine.place.shown)
