"""Joins the user's transaction on a connection of PyMySQL, or of SQLAlchemy on PyMySQL."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pymysql
from pymysql.cursors import Cursor

from tampu.engines.mariadb.database import Db
from tampu.engines.sql.user_transaction import Transaction
from tampu.model.errors import InvalidConfig, InvalidState

if TYPE_CHECKING:
    from tampu.engines.mariadb.engine import MariaEngine


@contextlib.contextmanager
def joined(engine: MariaEngine, connection: Any) -> Iterator[Transaction]:
    """Run calls in the user's transaction. If none is open, begin one and commit it at the end of the block."""
    with contextlib.ExitStack() as begun:
        driver = connection
        if not isinstance(connection, pymysql.Connection):
            # A SQLAlchemy Connection wraps the driver's.
            driver = getattr(getattr(connection, "connection", None), "driver_connection", None)
            if isinstance(driver, pymysql.Connection) and not connection.in_transaction():
                begun.enter_context(connection.begin())
        if not isinstance(driver, pymysql.Connection):
            raise InvalidConfig(
                "the connection must be one of PyMySQL, or of SQLAlchemy on PyMySQL",
                field="connection",
                hint="pymysql.connect(…), or create_engine('mysql+pymysql://…').connect()",
            )
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
    """Compare the tail of the ids, which differs in every database."""
    try:
        with driver.cursor(Cursor) as cursor:
            cursor.execute(f"SELECT value FROM `{engine.place.database}`.tampu_meta WHERE name = 'tail'")  # noqa: S608 - a checked name
            row = cursor.fetchone()
    except pymysql.Error:
        row = None
    if not row or int(row[0]) != engine.registry.tail:
        raise InvalidConfig(
            "the connection is to another database", field="connection", hint=f"connect to {engine.place.shown}"
        )
