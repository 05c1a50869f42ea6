"""Joins the user's transaction on a connection of psycopg, or of SQLAlchemy on psycopg."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.pq import TransactionStatus

from tampu.engines.postgres.database import Db
from tampu.engines.sql.user_transaction import Transaction, check_tail, driver_of

if TYPE_CHECKING:
    from tampu.engines.postgres.engine import PostgresEngine


@contextlib.contextmanager
def joined(engine: PostgresEngine, connection: Any) -> Iterator[Transaction]:
    """Run calls in the user's transaction. If none is open, begin one and commit it at the end of the block."""
    with contextlib.ExitStack() as begun:
        hint = "psycopg.connect(…), or create_engine('postgresql+psycopg://…').connect()"
        driver = driver_of(connection, psycopg.Connection, begun, "psycopg", hint)
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
    check_tail(tuple(row.values()) if isinstance(row, dict) else row, engine, engine.place.shown)
