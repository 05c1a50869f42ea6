"""Lost connections: made again unnoticed where nothing can have happened, reported where something may have."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pymysql
import pytest

import tampu
from tampu.broker import access
from tests.conformance.harness import payloads, until, waits
from tests.servers.mariadb import FAST, MariaDb, databases

Connection = Any


@pytest.fixture
def own() -> Iterator[MariaDb]:
    with MariaDb(FAST) as made:
        yield made


def test_sessions_that_were_ended_while_idle_are_not_noticed(store: tampu.Store) -> None:
    store.publish("jobs", 1)
    for turn in range(3):
        databases.end_sessions()
        store.publish("jobs", turn)
        databases.end_sessions()
        assert store.stats("jobs").ready == turn + 2
        assert len(store.journal().transitions) == turn + 2


def test_a_waiting_claim_is_woken_by_others_after_its_sessions_were_ended(url: str) -> None:
    with ThreadPoolExecutor(1) as pool, tampu.open(url) as waiter, tampu.open(url, maintenance=False) as other:
        waiting = pool.submit(waiter.claim, "jobs", wait=240)
        until(lambda: waits(waiter))
        databases.end_sessions()
        other.publish("jobs", "hello")
        assert payloads(waiting.result(60)) == ["hello"]


def test_a_restart_of_the_server_is_waited_for(own: MariaDb, monkeypatch: Any) -> None:
    for module in ("engine", "read_pool"):
        monkeypatch.setattr(f"tampu.engines.sql.{module}._PATIENCE_SECONDS", 240)  # a busy machine starts it slowly
    with tampu.open(own.url()) as store, ThreadPoolExecutor(1) as pool:
        store.publish("jobs", 1)
        own.stop()
        waiting = pool.submit(store.publish, "jobs", 2)
        own.start()
        assert waiting.result(240).payload == 2
        assert payloads(store.claim("jobs", limit=5)) == [1, 2]


def test_a_server_that_stays_away_is_an_error_in_bounded_time(own: MariaDb, monkeypatch: Any) -> None:
    for module in ("engine", "read_pool"):
        monkeypatch.setattr(f"tampu.engines.sql.{module}._PATIENCE_SECONDS", 0.2)
    with tampu.open(own.url(), maintenance=False) as store:
        store.publish("jobs", 1)
        own.stop()
        for call in (lambda: store.publish("jobs", 2), lambda: store.stats("jobs"), lambda: store.claim("jobs")):
            with pytest.raises(tampu.Unavailable):
                call()


def test_a_connection_lost_in_the_commit_is_reported_and_not_tried_again(store: tampu.Store, db: Connection) -> None:
    store.publish("jobs", 1)
    engine: Any = access.engine(store)
    id = engine._db.connection.thread_id()
    say = engine._db.command

    def cut(sql: bytes) -> None:
        say(sql)
        if sql == b"COMMIT":
            with db.cursor() as cursor:
                cursor.execute(f"KILL CONNECTION {id}")

    engine._db.command = cut
    with pytest.raises(tampu.Unavailable, match="may or may not"):
        store.publish("jobs", 2)
    store.publish("jobs", 3)
    assert payloads(store.claim("jobs", limit=5)) == [1, 3]


@pytest.mark.parametrize("number", [1213, 1205])
def test_what_the_server_undoes_for_others_is_tried_again_and_not_for_ever(
    store: tampu.Store, monkeypatch: Any, number: int
) -> None:
    engine: Any = access.engine(store)
    ask = engine._db.submit
    left = 3

    def undone(name: str, *values: Any) -> Any:
        nonlocal left
        if name == "publish_simple" and left:
            left -= 1
            raise pymysql.OperationalError(number, "undone")
        return ask(name, *values)

    monkeypatch.setattr(engine._db, "submit", undone)
    store.publish("jobs", 1)
    assert left == 0
    left = 1000
    with pytest.raises(tampu.Unavailable):
        store.publish("jobs", 2)
    assert left > 900
    left = 0
    assert payloads(store.claim("jobs", limit=5)) == [1]


def test_a_lock_that_is_held_for_long_is_waited_for_and_then_reported(
    store: tampu.Store, server: MariaDb, url: str, monkeypatch: Any
) -> None:
    store.queues.put("jobs", max_depth=5)
    monkeypatch.setattr("tampu.engines.mariadb.connect.LOCK_SECONDS", 1)
    monkeypatch.setattr("tampu.engines.sql.engine._TRIES", 2)
    with (
        tampu.open(url, maintenance=False) as waiter,
        server.connect(url.rpartition("/")[2], autocommit=False) as holder,
    ):
        with holder.cursor() as cursor:
            cursor.execute("SELECT * FROM tampu_latch FOR UPDATE")
        with pytest.raises(tampu.Unavailable, match="Lock wait"):
            waiter.publish("jobs", 1)
        holder.rollback()
        waiter.publish("jobs", 2)


def test_a_wrong_user_or_database_is_reported_at_once(server: MariaDb) -> None:
    with pytest.raises(tampu.InvalidConfig, match="nowhere"):
        tampu.open(server.url("nowhere"))
    with pytest.raises(tampu.Forbidden):
        tampu.open(server.url(user="nobody_here"))
