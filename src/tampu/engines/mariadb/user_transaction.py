"""Working inside a transaction of the user's: PyMySQL's connection, or SQLAlchemy's on it."""

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
    """In the user's transaction: theirs to commit if they began it, ours if not."""
    with contextlib.ExitStack() as begun:
        driver = connection
        if not isinstance(connection, pymysql.Connection):
            # SQLAlchemy's Connection: the one of the driver is inside.
            driver = getattr(getattr(connection, "connection", None), "driver_connection", None)
            if isinstance(driver, pymysql.Connection) and not connection.in_transaction():
                begun.enter_context(connection.begin())
        if not isinstance(driver, pymysql.Connection):
            raise InvalidConfig(
                "the connection must be PyMySQL's, or SQLAlchemy's on PyMySQL",
                field="connection",
                hint="pymysql.connect(…), or create_engine('mysql+pymysql://…').connect()",
            )
        _begin(driver, begun, theirs=driver is not connection)
        _check_same_database(engine, driver)
        db = Db(driver, engine.place.database, ours=False, most_bytes=1 << 20)
        db.guest = engine.guests_say
        yield Transaction(engine, db, notify_queues=True)


def _begin(driver: pymysql.Connection[Any], begun: contextlib.ExitStack, *, theirs: bool) -> None:
    """Begin, where the user has not. Either way what we look up must be what is true now, not what was at the start."""
    with driver.cursor(Cursor) as cursor:
        cursor.execute("SELECT @@in_transaction, @@tx_isolation")
        ((inside, isolation),) = cursor.fetchall()
        if int(inside):
            if isolation not in ("READ-COMMITTED", "READ-UNCOMMITTED"):
                raise InvalidState(
                    f"the transaction under way is {isolation}: it does not see what others have done since",
                    hint="SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED before it begins,"
                    " or let q.transaction(connection) begin it",
                )
            return
        cursor.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
        cursor.execute("START TRANSACTION")
    if not theirs:
        begun.push(_Ending(driver))


class _Ending(contextlib.AbstractContextManager[None]):
    """Commits what we began, or takes it back."""

    def __init__(self, driver: pymysql.Connection[Any]) -> None:
        self._driver = driver

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._driver.commit()
        elif self._driver.open:
            with contextlib.suppress(pymysql.Error):  # the error that brought us here is what matters
                self._driver.rollback()


def _check_same_database(engine: MariaEngine, driver: pymysql.Connection[Any]) -> None:
    """By what only these tables have: the tail of their ids."""
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
