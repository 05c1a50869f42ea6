"""Publish and settle inside the user's own transaction: psycopg's, and SQLAlchemy's on psycopg."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
import sqlalchemy
import sqlalchemy.orm
from psycopg.pq import TransactionStatus
from psycopg.rows import dict_row

import tampu
from tests.conformance.harness import counts, payloads, until, waits
from tests.servers.postgres import Postgres


class Stop(Exception):
    """Leaves a transaction."""


@pytest.fixture
def mine(server: Postgres, store: tampu.Store) -> Iterator[psycopg.Connection[Any]]:
    """The user's connection, with a table of theirs."""
    store.queues.put("jobs", max_attempts=5)
    with psycopg.connect(server.url()) as connection:
        connection.execute("CREATE TEMP TABLE orders (n int)")
        connection.commit()
        yield connection


def _orders(connection: psycopg.Connection[Any]) -> int:
    row = connection.execute("SELECT count(*) FROM orders").fetchone()
    connection.rollback()
    assert row is not None
    return int(row[0])


def test_what_the_user_began_the_user_commits(store: tampu.Store, mine: psycopg.Connection[Any]) -> None:
    mine.execute("INSERT INTO orders VALUES (1)")
    with store.transaction(mine) as tx:
        message = tx.publish("jobs", "order 1")
    assert mine.info.transaction_status == TransactionStatus.INTRANS
    assert store.claim("jobs") == []
    mine.commit()
    assert store.get(message.id).payload == "order 1"
    assert _orders(mine) == 1


def test_what_the_user_takes_back_never_was(store: tampu.Store, mine: psycopg.Connection[Any]) -> None:
    store.publish("jobs", 1)
    (lease,) = store.claim("jobs")
    before = store.journal().transitions
    mine.execute("INSERT INTO orders VALUES (1)")
    with store.transaction(mine) as tx:
        tx.ack(lease)
        tx.publish("jobs", 2, key="k", idempotency_key="i", group="g")
    mine.rollback()
    assert store.journal().transitions == before
    assert counts(store, "jobs") == {"leased": 1}
    assert not store.publish("jobs", 2, key="k", idempotency_key="i").duplicate
    store.ack(lease)


@pytest.mark.parametrize("autocommit", [False, True])
def test_an_idle_connection_is_committed_by_the_block(
    store: tampu.Store, mine: psycopg.Connection[Any], autocommit: bool
) -> None:
    mine.autocommit = autocommit
    with store.transaction(mine) as tx:
        tx.execute("INSERT INTO orders VALUES (1)")
        tx.publish("jobs", 1)
    assert mine.info.transaction_status == TransactionStatus.IDLE
    assert counts(store, "jobs") == {"ready": 1}
    with pytest.raises(Stop), store.transaction(mine) as tx:  # noqa: PT012 - the block is what is tested
        tx.execute("INSERT INTO orders VALUES (2)")
        tx.publish("jobs", 2)
        raise Stop
    assert counts(store, "jobs") == {"ready": 1}
    assert _orders(mine) == 1


def test_a_lost_lease_that_is_caught_leaves_the_rest_to_commit(
    store: tampu.Store, mine: psycopg.Connection[Any]
) -> None:
    with store.transaction(mine) as tx:
        with pytest.raises(tampu.LeaseLost):
            tx.ack("jobs/1.1")
        tx.execute("INSERT INTO orders VALUES (1)")
    assert _orders(mine) == 1


def test_who_waits_is_woken_by_the_user_s_commit(url: str, store: tampu.Store, mine: psycopg.Connection[Any]) -> None:
    with tampu.open(url) as waiter, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(waiter.claim, "jobs", wait=240)
        until(lambda: waits(waiter))
        mine.execute("SELECT 1")
        with store.transaction(mine) as tx:
            tx.publish("jobs", "hello")
        assert not waiting.done()
        mine.commit()
        assert payloads(waiting.result(60)) == ["hello"]


def test_a_connection_with_rows_of_its_own_kind_will_do(store: tampu.Store, server: Postgres) -> None:
    with psycopg.connect(server.url(), row_factory=dict_row) as mine, store.transaction(mine) as tx:
        tx.publish_many("jobs", range(3))
    assert counts(store, "jobs") == {"ready": 3}


def test_a_connection_to_elsewhere_is_refused_and_left_as_it_was(store: tampu.Store, db: Any, server: Postgres) -> None:
    db.execute("DROP DATABASE IF EXISTS elsewhere")
    db.execute("CREATE DATABASE elsewhere")
    with psycopg.connect(server.url(database="elsewhere")) as other:
        with pytest.raises(tampu.InvalidConfig, match="another database"), store.transaction(other):
            pass
        assert other.info.transaction_status == TransactionStatus.IDLE
    with pytest.raises(tampu.InvalidConfig, match="psycopg"), store.transaction(object()):
        pass
    db.execute("DROP DATABASE elsewhere")


@pytest.fixture
def alchemy(server: Postgres, store: tampu.Store) -> Iterator[sqlalchemy.Engine]:
    """The user's SQLAlchemy, with a table of theirs."""
    store.queues.put("jobs", max_attempts=5)
    engine = sqlalchemy.create_engine(server.url().replace("postgresql://", "postgresql+psycopg://"))
    with engine.begin() as connection:
        connection.execute(sqlalchemy.text("DROP TABLE IF EXISTS public.theirs"))
        connection.execute(sqlalchemy.text("CREATE TABLE public.theirs (n int PRIMARY KEY)"))
    yield engine
    engine.dispose()


INSERT = sqlalchemy.text("INSERT INTO public.theirs VALUES (:n)")


def _theirs(engine: sqlalchemy.Engine) -> list[int]:
    with engine.connect() as connection:
        return list(connection.scalars(sqlalchemy.text("SELECT n FROM public.theirs ORDER BY n")))


def test_sqlalchemy_s_transaction_is_joined(store: tampu.Store, alchemy: sqlalchemy.Engine) -> None:
    store.publish("jobs", "done by order 1")
    (lease,) = store.claim("jobs")
    with alchemy.begin() as connection:
        connection.execute(INSERT, {"n": 1})
        with store.transaction(connection) as tx:
            tx.publish("jobs", 1)
            tx.ack(lease)
        connection.execute(INSERT, {"n": 2})
        assert counts(store, "jobs") == {"leased": 1}
    assert counts(store, "jobs") == {"ready": 1, "done": 1}
    with pytest.raises(Stop), alchemy.begin() as connection:  # noqa: PT012 - the block is what is tested
        connection.execute(INSERT, {"n": 3})
        with store.transaction(connection) as tx:
            tx.publish("jobs", 2)
        raise Stop
    assert counts(store, "jobs") == {"ready": 1, "done": 1}
    assert _theirs(alchemy) == [1, 2]


def test_a_transaction_that_sqlalchemy_began_by_itself_is_the_user_s_to_commit(
    store: tampu.Store, alchemy: sqlalchemy.Engine
) -> None:
    with alchemy.connect() as connection:
        connection.execute(INSERT, {"n": 1})
        with store.transaction(connection) as tx:
            tx.publish("jobs", 1)
        assert counts(store, "jobs") == {}
        connection.rollback()
        connection.execute(INSERT, {"n": 2})
        with store.transaction(connection) as tx:
            tx.publish("jobs", 2)
        connection.commit()
    assert counts(store, "jobs") == {"ready": 1}
    assert _theirs(alchemy) == [2]


def test_a_savepoint_of_sqlalchemy_s_takes_our_part_back_alone(store: tampu.Store, alchemy: sqlalchemy.Engine) -> None:
    with alchemy.begin() as connection:
        connection.execute(INSERT, {"n": 1})
        with pytest.raises(Stop), connection.begin_nested():  # noqa: PT012 - the block is what is tested
            with store.transaction(connection) as tx:
                tx.publish("jobs", 1)
            raise Stop
        with store.transaction(connection) as tx:
            tx.publish("jobs", 2)
    assert payloads(store.claim("jobs", limit=5)) == [2]
    assert _theirs(alchemy) == [1]


def test_the_connection_of_an_orm_session_is_joined(store: tampu.Store, alchemy: sqlalchemy.Engine) -> None:
    with sqlalchemy.orm.Session(alchemy) as session:
        session.execute(INSERT, {"n": 1})
        with store.transaction(session.connection()) as tx:
            tx.publish("jobs", 1)
        assert counts(store, "jobs") == {}
        session.commit()
    assert counts(store, "jobs") == {"ready": 1}


def test_sqlalchemy_s_connection_without_a_transaction_is_committed_by_the_block(
    store: tampu.Store, alchemy: sqlalchemy.Engine
) -> None:
    for level in ("READ COMMITTED", "AUTOCOMMIT"):
        with alchemy.connect().execution_options(isolation_level=level) as connection:
            with store.transaction(connection) as tx:
                tx.publish("jobs", level)
            assert payloads(store.claim("jobs")) == [level]
            with pytest.raises(Stop), store.transaction(connection) as tx:  # noqa: PT012 - the block is what is tested
                tx.publish("jobs", level)
                raise Stop
            assert store.claim("jobs") == []
