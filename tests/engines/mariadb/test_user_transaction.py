"""Publish and settle inside the user's own transaction: PyMySQL's, and SQLAlchemy's on PyMySQL."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pymysql
import pytest
import sqlalchemy
from pymysql.cursors import DictCursor

import tampu
from tests.conformance.harness import counts, payloads, until, waits
from tests.servers.mariadb import MariaDb

COMMITTED = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"


class Stop(Exception):
    """Leaves a transaction."""


@pytest.fixture
def database(url: str) -> str:
    return url.rpartition("/")[2]


@pytest.fixture
def mine(server: MariaDb, store: tampu.Store, database: str) -> Iterator[pymysql.Connection[Any]]:
    """The user's connection, with a table of theirs."""
    store.queues.put("jobs", max_attempts=5)
    with server.connect(database, autocommit=False, init_command=COMMITTED) as connection:
        _run(connection, "CREATE TABLE orders (n int)")
        yield connection
        connection.rollback()


def _run(connection: pymysql.Connection[Any], sql: str) -> Any:
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return cursor.fetchall()


def _inside(connection: pymysql.Connection[Any]) -> bool:
    ((inside,),) = _run(connection, "SELECT @@in_transaction")
    return bool(inside)


def _orders(connection: pymysql.Connection[Any]) -> int:
    ((found,),) = _run(connection, "SELECT COUNT(*) FROM orders")
    connection.rollback()
    return int(found)


def test_what_the_user_began_the_user_commits(store: tampu.Store, mine: pymysql.Connection[Any]) -> None:
    _run(mine, "INSERT INTO orders VALUES (1)")
    with store.transaction(mine) as tx:
        message = tx.publish("jobs", "order 1")
    assert _inside(mine)
    assert store.claim("jobs") == []
    mine.commit()
    assert store.get(message.id).payload == "order 1"
    assert _orders(mine) == 1


def test_what_the_user_takes_back_never_was(store: tampu.Store, mine: pymysql.Connection[Any]) -> None:
    store.publish("jobs", 1)
    (lease,) = store.claim("jobs")
    before = store.journal().transitions
    _run(mine, "INSERT INTO orders VALUES (1)")
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
    store: tampu.Store, mine: pymysql.Connection[Any], autocommit: bool
) -> None:
    mine.autocommit(autocommit)
    _run(mine, "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")  # what we begin is as we need it
    with store.transaction(mine) as tx:
        tx.execute("INSERT INTO orders VALUES (%s)", (1,))
        tx.publish("jobs", 1)
    assert not _inside(mine)
    assert counts(store, "jobs") == {"ready": 1}
    with pytest.raises(Stop), store.transaction(mine) as tx:  # noqa: PT012 - the block is what is tested
        tx.execute("INSERT INTO orders VALUES (2)")
        tx.publish("jobs", 2)
        raise Stop
    assert counts(store, "jobs") == {"ready": 1}
    assert _orders(mine) == 1


def test_a_transaction_that_sees_only_its_beginning_is_refused_with_what_to_do(
    store: tampu.Store, mine: pymysql.Connection[Any]
) -> None:
    _run(mine, "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    _run(mine, "INSERT INTO orders VALUES (1)")
    with pytest.raises(tampu.InvalidState, match="REPEATABLE-READ") as refused, store.transaction(mine):
        pass
    assert "READ COMMITTED" in (refused.value.hint or "")
    mine.commit()
    assert _orders(mine) == 1


def test_a_lost_lease_that_is_caught_leaves_the_rest_to_commit(
    store: tampu.Store, mine: pymysql.Connection[Any]
) -> None:
    with store.transaction(mine) as tx:
        with pytest.raises(tampu.LeaseLost):
            tx.ack("jobs/1.1")
        tx.execute("INSERT INTO orders VALUES (1)")
    assert _orders(mine) == 1


def test_a_table_made_inside_ends_the_transaction_and_is_reported(
    store: tampu.Store, mine: pymysql.Connection[Any]
) -> None:
    """MariaDB commits with CREATE TABLE: what comes after it would not be of the transaction."""
    with pytest.raises(tampu.Unavailable, match="ended"), store.transaction(mine) as tx:  # noqa: PT012 - the block is tested
        tx.publish("jobs", 1)
        tx.execute("CREATE TABLE more (n int)")
        tx.publish("jobs", 2)
    assert counts(store, "jobs") == {"ready": 1}


def test_a_deadlock_in_a_call_is_reported_and_takes_the_whole_transaction_back(
    server: MariaDb, store: tampu.Store, mine: pymysql.Connection[Any], database: str
) -> None:
    with server.connect(database, autocommit=False) as other, ThreadPoolExecutor(1) as pool:
        _run(other, "INSERT INTO orders SELECT n FROM tampu_latch WHERE n > 0 LIMIT 500")
        _run(other, "SELECT * FROM tampu_latch FOR UPDATE")  # the heavier of the two goes on
        _run(mine, "INSERT INTO orders VALUES (1)")
        _run(mine, "SELECT * FROM tampu_revision FOR UPDATE")

        def work() -> None:
            with store.transaction(mine) as tx:
                with pytest.raises(tampu.Unavailable, match="Deadlock"):
                    tx.publish("jobs", 2, key="k")
                with pytest.raises(tampu.Unavailable, match="ended"):
                    tx.publish("jobs", 3)

        waiting = pool.submit(work)
        until(lambda: _run_apart(server, "SELECT COUNT(*) FROM information_schema.innodb_lock_waits") != ((0,),))
        _run(other, "SELECT * FROM tampu_revision FOR UPDATE")
        waiting.result(60)
        other.rollback()
    assert _orders(mine) == 0
    assert counts(store, "jobs") == {}


def _run_apart(server: MariaDb, sql: str) -> Any:
    with server.connect() as connection:
        return _run(connection, sql)


def test_who_waits_is_woken_by_the_user_s_commit(url: str, store: tampu.Store, mine: pymysql.Connection[Any]) -> None:
    with tampu.open(url) as waiter, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(waiter.claim, "jobs", wait=240)
        until(lambda: waits(waiter))
        _run(mine, "INSERT INTO orders VALUES (1)")
        with store.transaction(mine) as tx:
            tx.publish("jobs", "hello")
        assert not waiting.done()
        mine.commit()
        assert payloads(waiting.result(60)) == ["hello"]


@pytest.mark.parametrize(
    "options",
    [
        {"cursorclass": DictCursor},
        {"charset": "latin1"},
        {"use_unicode": False},
        {"sql_mode": "ANSI_QUOTES,NO_BACKSLASH_ESCAPES"},
    ],
    ids=["rows are dicts", "latin1", "bytes", "another syntax"],
)
def test_a_connection_with_ways_of_its_own_will_do(
    store: tampu.Store, server: MariaDb, options: dict[str, Any]
) -> None:
    store.queues.put("grouped", group_order=True)
    payload = "it's \\ \x00 ü €"
    with server.connect(autocommit=False, **options) as mine, store.transaction(mine) as tx:
        message = tx.publish("jobs", payload, key="k'\\ü", idempotency_key="i\\'", headers={"h": "ü'"})
        again = tx.publish("jobs", payload, key="k'\\ü")
        tx.publish_many("grouped", [tampu.NewMessage(n, group="g\\'") for n in range(3)])
        assert again.id == message.id
    assert payloads(store.claim("jobs", limit=5)) == [payload]
    assert counts(store, "grouped") == {"ready": 1, "held": 2}


def test_a_connection_to_elsewhere_is_refused_and_left_as_it_was(store: tampu.Store) -> None:
    with MariaDb() as elsewhere, elsewhere.connect("tampu", autocommit=False) as other:
        with pytest.raises(tampu.InvalidConfig, match="another database"), store.transaction(other):
            pass
        assert not _inside(other)
    with pytest.raises(tampu.InvalidConfig, match="PyMySQL"), store.transaction(object()):
        pass


@pytest.fixture
def alchemy(server: MariaDb, mine: pymysql.Connection[Any], database: str) -> Iterator[sqlalchemy.Engine]:
    del mine  # its table is needed
    place = f"mysql+pymysql://root@127.0.0.1:{server.port}/{database}"
    engine = sqlalchemy.create_engine(place, isolation_level="READ COMMITTED")
    yield engine
    engine.dispose()


def test_sqlalchemy_s_transaction_is_joined(store: tampu.Store, alchemy: sqlalchemy.Engine) -> None:
    insert = sqlalchemy.text("INSERT INTO orders VALUES (1)")
    with alchemy.connect() as connection:
        with connection.begin():
            connection.execute(insert)
            with store.transaction(connection) as tx:
                tx.publish("jobs", 1)
            assert counts(store, "jobs") == {}
        assert counts(store, "jobs") == {"ready": 1}
        with pytest.raises(Stop), connection.begin():  # noqa: PT012 - the block is what is tested
            connection.execute(insert)
            with store.transaction(connection) as tx:
                tx.publish("jobs", 2)
            raise Stop
        assert counts(store, "jobs") == {"ready": 1}


def test_sqlalchemy_s_connection_without_a_transaction_is_committed_by_the_block(
    store: tampu.Store, alchemy: sqlalchemy.Engine
) -> None:
    with alchemy.connect() as connection:
        with store.transaction(connection) as tx:
            tx.publish("jobs", 1)
        assert counts(store, "jobs") == {"ready": 1}
