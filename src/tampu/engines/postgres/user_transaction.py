"""Joins the user's transaction on a connection of psycopg, or of SQLAlchemy on psycopg."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.pq import TransactionStatus

from tampu.engines.postgres.database import Db
from tampu.engines.sql.user_transaction import Transaction
from tampu.model.errors import InvalidConfig

if TYPE_CHECKING:
    from tampu.engines.postgres.engine import PostgresEngine


@contextlib.contextmanager
def joined(engine: PostgresEngine, connection: Any) -> Iterator[Transaction]:
    """Run calls in the user's transaction. If none is open, begin one and commit it at the end of the block."""
    with contextlib.ExitStack() as begun:
        driver = connection
        if not isinstance(connection, psycopg.Connection):
            # A SQLAlchemy Connection wraps the driver's.
            driver = getattr(getattr(connection, "connection", None), "driver_connection", None)
            if isinstance(driver, psycopg.Connection) and not connection.in_transaction():
                begun.enter_context(connection.begin())
        if not isinstance(driver, psycopg.Connection):
            raise InvalidConfig(
                "the connection must be one of psycopg, or of SQLAlchemy on psycopg",
                field="connection",
                hint="psycopg.connect(…), or create_engine('postgresql+psycopg://…').connect()",
            )
        _check_same_database(engine, driver)
        if driver is connection and driver.info.transaction_status == TransactionStatus.IDLE:
            begun.enter_context(driver.transaction())
        elif driver.autocommit and driver.info.transaction_status == TransactionStatus.IDLE:
            begun.enter_context(driver.transaction())  # SQLAlchemy in AUTOCOMMIT: its begin() opens no transaction
        elif driver.info.transaction_status == TransactionStatus.IDLE:
            driver.execute("SELECT 1")  # SQLAlchemy has begun, but the driver begins only with the first statement
        db = Db(driver, engine.place.schema, ours=False)
        yield Transaction(engine, db, notify_queues=True)


def _check_same_database(engine: PostgresEngine, driver: psycopg.Connection[Any]) -> None:
    """Compare the tail of the ids, which differs in every schema."""
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
            driver.rollback()  # our SELECT began a transaction
    values = tuple(row.values()) if isinstance(row, dict) else row
    if not values or int(values[0]) != engine.registry.tail:
        raise InvalidConfig(
            "the connection is to another database", field="connection", hint=f"connect to {engine.place.shown}"
        )
