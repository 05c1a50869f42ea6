"""Transactions with the user's own writes: on the engine's connection, or inside a transaction of the user's."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.pq import TransactionStatus

from tampu.engines import port
from tampu.engines.carrying import carry_out
from tampu.engines.postgres import connecting
from tampu.engines.postgres.commit import Commit
from tampu.engines.postgres.statements import Db
from tampu.engines.postgres.verbs import VERBS
from tampu.model.errors import InvalidConfig, TampuError, Unavailable

if TYPE_CHECKING:
    from tampu.engines.postgres.engine import PostgresEngine


class Transaction:
    """Runs calls inside an open transaction; they take effect with its commit."""

    def __init__(self, engine: PostgresEngine, db: Db, *, rings: bool) -> None:
        self.connection = db.connection
        self.commits: list[Commit] = []
        self._engine = engine
        self._db = db
        self._rings = rings

    @property
    def active(self) -> bool:
        """Is the transaction still open?"""
        return not self.connection.closed and self.connection.info.transaction_status == TransactionStatus.INTRANS

    def run(self, calls: Sequence[port.Call]) -> list[Any | TampuError]:
        db = self._db
        if not self.active:
            raise Unavailable("the transaction has ended inside the block", hint="leave commit to the with block")
        try:
            db.say(b"SAVEPOINT tampu_call")
            try:
                commit = self._engine.begin_joined(db)
                replies = carry_out(VERBS, commit, calls)
                commit.finish()
                for fill in commit.deferred:
                    fill()
                if self._rings and commit.ready:
                    # Theirs to commit: the server tells those who wait when, and if, it does.
                    db.send("notify", f"tampu_{self._engine.place.schema}", "transaction")
            except BaseException:
                # Who catches this and goes on must not commit half of the call.
                if not self.connection.closed:
                    db.say(b"ROLLBACK TO tampu_call")
                    db.say(b"RELEASE tampu_call")
                raise
            db.say(b"RELEASE tampu_call")
        except psycopg.Error as error:
            raise connecting.translate(error, self._engine.place) from error
        self.commits.append(commit)
        return replies


@contextlib.contextmanager
def own(engine: PostgresEngine, db: Db) -> Iterator[Transaction]:
    """On the engine's own connection."""
    work = Transaction(engine, db, rings=False)
    db.say(b"BEGIN")
    yield work
    if not work.active:
        raise Unavailable("the transaction was ended inside", hint="leave commit to the with block")
    db.say(b"COMMIT")


@contextlib.contextmanager
def joined(engine: PostgresEngine, connection: Any) -> Iterator[Transaction]:
    """In the user's transaction: theirs to commit if they began it, ours if not."""
    with contextlib.ExitStack() as begun:
        driver = connection
        if not isinstance(connection, psycopg.Connection):
            # SQLAlchemy's Connection: the one of the driver is inside.
            driver = getattr(getattr(connection, "connection", None), "driver_connection", None)
            if isinstance(driver, psycopg.Connection) and not connection.in_transaction():
                begun.enter_context(connection.begin())
        if not isinstance(driver, psycopg.Connection):
            raise InvalidConfig(
                "the connection must be psycopg's, or SQLAlchemy's on psycopg",
                field="connection",
                hint="psycopg.connect(…), or create_engine('postgresql+psycopg://…').connect()",
            )
        _check_same_database(engine, driver)
        if driver is connection and driver.info.transaction_status == TransactionStatus.IDLE:
            begun.enter_context(driver.transaction())
        elif driver.info.transaction_status == TransactionStatus.IDLE:
            driver.execute("SELECT 1")  # SQLAlchemy has begun; the driver begins with the first statement
        db = Db(driver, engine.place.schema, ours=False)
        yield Transaction(engine, db, rings=True)


def _check_same_database(engine: PostgresEngine, driver: psycopg.Connection[Any]) -> None:
    """By what only this schema has: the tail of its ids."""
    status = driver.info.transaction_status
    try:
        with driver.cursor() as cursor:
            cursor.execute(f"SELECT value FROM \"{engine.place.schema}\".meta WHERE name = 'tail'")  # noqa: S608 - a checked name
            row = cursor.fetchone()
    except psycopg.Error:
        row = None
        if status == TransactionStatus.IDLE and not driver.closed:
            driver.rollback()
    else:
        if status == TransactionStatus.IDLE and not driver.autocommit:
            driver.rollback()  # looking began a transaction
    values = tuple(row.values()) if isinstance(row, dict) else row
    if not values or int(values[0]) != engine.house.tail:
        raise InvalidConfig(
            "the connection is to another database", field="connection", hint=f"connect to {engine.place.shown}"
        )
