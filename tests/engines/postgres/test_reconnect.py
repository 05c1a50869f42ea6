"""Lost connections: made again unnoticed where nothing can have happened, reported where something may have."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

import tampu
from tampu.broker import access
from tampu.engines.postgres.database import MANY
from tests.conformance.harness import payloads, until, waits
from tests.servers.postgres import FAST, Postgres, databases


@pytest.fixture
def own() -> Iterator[Postgres]:
    with Postgres(FAST) as made:
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


def test_a_restart_of_the_server_is_waited_for(own: Postgres, monkeypatch: Any) -> None:
    for module in ("engine", "read_pool"):
        monkeypatch.setattr(f"tampu.engines.sql.{module}._PATIENCE_SECONDS", 240)  # a busy machine starts it slowly
    with tampu.open(own.url()) as store, ThreadPoolExecutor(1) as pool:
        store.publish("jobs", 1)
        own.stop()
        waiting = pool.submit(store.publish, "jobs", 2)
        own.start()
        assert waiting.result(240).payload == 2
        assert payloads(store.claim("jobs", limit=5)) == [1, 2]


def test_a_server_that_stays_away_is_an_error_in_bounded_time(own: Postgres, monkeypatch: Any) -> None:
    for module in ("engine", "read_pool"):
        monkeypatch.setattr(f"tampu.engines.sql.{module}._PATIENCE_SECONDS", 0.2)
    with tampu.open(own.url(), maintenance=False) as store:
        store.publish("jobs", 1)
        own.stop()
        for call in (lambda: store.publish("jobs", 2), lambda: store.stats("jobs"), lambda: store.claim("jobs")):
            with pytest.raises(tampu.Unavailable):
                call()


def test_a_connection_lost_in_the_commit_is_reported_and_not_tried_again(
    store: tampu.Store, db: psycopg.Connection[Any]
) -> None:
    store.publish("jobs", 1)
    engine: Any = access.engine(store)
    pid = engine._db.connection.info.backend_pid
    say = engine._db.command

    def cut(sql: bytes) -> None:
        say(sql)
        if sql == b"COMMIT":
            db.execute("SELECT pg_terminate_backend(%s)", (pid,))
            until(lambda: db.execute("SELECT 1 FROM pg_stat_activity WHERE pid = %s", (pid,)).fetchone() is None)

    engine._db.command = cut
    with pytest.raises(tampu.Unavailable, match="may or may not"):
        store.publish("jobs", 2, idempotency_key="two")  # not plain: a commit of several round trips
    store.publish("jobs", 3)
    assert payloads(store.claim("jobs", limit=5)) == [1, 3]


@contextlib.contextmanager
def _cut_after_the_next_commit(store: tampu.Store) -> Iterator[None]:
    """The connection ends when the server has everything; its answer never arrives."""
    engine: Any = access.engine(store)
    wire = engine._db._wire
    fd, tell = wire._pgconn.socket, wire._send_sync
    way = os.dup(fd)

    def cut() -> None:
        tell()
        wire._send_sync = tell
        ours, theirs = socket.socketpair()
        theirs.close()
        os.dup2(ours.fileno(), fd)
        ours.close()

    wire._send_sync = cut
    try:
        yield
    finally:
        os.close(way)


def test_a_publish_in_one_round_trip_that_is_not_answered_is_reported_and_not_tried_again(store: tampu.Store) -> None:
    store.publish("jobs", 1)
    with _cut_after_the_next_commit(store), pytest.raises(tampu.Unavailable, match="may or may not"):
        store.publish("jobs", 2)
    until(lambda: store.stats("jobs").ready == 2)  # it had come through
    store.publish("jobs", 3)
    assert payloads(store.claim("jobs", limit=5)) == [1, 2, 3]


@contextlib.contextmanager
def _at_commit(store: tampu.Store, db: psycopg.Connection[Any], statement: str) -> Iterator[None]:
    """The server carries this out in every commit, after it has answered."""
    engine: Any = access.engine(store)
    schema = engine.place.schema
    body = f"BEGIN {statement}; RETURN NULL; END"
    db.execute(f"CREATE FUNCTION {schema}.late() RETURNS trigger AS $${body}$$ LANGUAGE plpgsql")
    try:
        db.execute(
            f"CREATE CONSTRAINT TRIGGER late AFTER INSERT ON {schema}.tally"
            f" DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION {schema}.late()"
        )
        yield
    finally:
        db.execute(f"DROP FUNCTION {schema}.late CASCADE")


@pytest.mark.parametrize("count", [1, MANY])
def test_an_error_of_the_commit_itself_is_reported(store: tampu.Store, db: psycopg.Connection[Any], count: int) -> None:
    store.publish("jobs", 1)
    with _at_commit(store, db, "RAISE 'no'"), pytest.raises(tampu.StorageError, match="no"):
        store.publish_many("jobs", [b"x"] * count)
    assert store.stats("jobs").ready == 1
    assert payloads(store.claim("jobs", limit=5)) == [1]


def test_a_commit_that_is_not_confirmed_after_its_answer_is_reported(
    store: tampu.Store, db: psycopg.Connection[Any]
) -> None:
    store.publish("jobs", 1)
    engine: Any = access.engine(store)
    pid = engine._db.connection.info.backend_pid
    with ThreadPoolExecutor(1) as pool, _at_commit(store, db, "PERFORM pg_advisory_xact_lock(4711)"):
        db.execute("SELECT pg_advisory_lock(4711)")
        try:
            publishing = pool.submit(store.publish_many, "jobs", [b"x"] * MANY)
            until(lambda: db.execute("SELECT 1 FROM pg_locks WHERE pid = %s AND NOT granted", (pid,)).fetchone())
            db.execute("SELECT pg_terminate_backend(%s)", (pid,))
            with pytest.raises(tampu.Unavailable, match="may or may not"):
                publishing.result(60)
        finally:
            db.execute("SELECT pg_advisory_unlock(4711)")
    assert store.stats("jobs").ready == 1


def test_acks_in_one_round_trip_that_are_not_answered_are_sent_again(store: tampu.Store) -> None:
    store.publish_many("jobs", [1, 2])
    leases = store.claim("jobs", limit=2)
    with _cut_after_the_next_commit(store):
        assert [o.state for o in store.settle([tampu.Ack(lease) for lease in leases])] == [tampu.State.DONE] * 2
    assert [t.verb for t in store.journal().transitions].count("ack") == 2


def test_a_claim_in_one_round_trip_that_is_not_answered_is_tried_again(store: tampu.Store) -> None:
    store.publish("jobs", 1)
    store.ack(store.claim("jobs")[0])
    store.publish_many("jobs", [2, 3])
    with _cut_after_the_next_commit(store):
        assert payloads(store.claim("jobs")) in ([2], [3])
    until(lambda: store.stats("jobs").ready == 0)  # what nobody heard of comes back when its lease has run out
    assert store.stats("jobs").leased == 2


def test_a_session_ended_before_the_commit_is_not_noticed(store: tampu.Store, server: Postgres) -> None:
    store.publish("jobs", 1)
    engine: Any = access.engine(store)
    pid = engine._db.connection.info.backend_pid
    with ThreadPoolExecutor(1) as pool, psycopg.connect(server.url(), autocommit=True) as db:
        with db.transaction():
            db.execute(f"LOCK TABLE {engine.place.schema}.tally")
            publishing = pool.submit(store.publish, "jobs", 2)
            until(lambda: db.execute("SELECT 1 FROM pg_locks WHERE pid = %s AND NOT granted", (pid,)).fetchone())
            db.execute("SELECT pg_terminate_backend(%s)", (pid,))
            until(lambda: not db.execute("SELECT 1 FROM pg_locks WHERE pid = %s", (pid,)).fetchone())
        publishing.result(60)
    assert payloads(store.claim("jobs", limit=5)) == [1, 2]


def test_a_wrong_password_or_database_is_reported_at_once(server: Postgres) -> None:
    with pytest.raises(tampu.Unavailable):
        tampu.open(server.url(database="nowhere"))
    with pytest.raises(tampu.TampuError):
        tampu.open(server.url(user="nobody_here"))


def test_a_thread_of_a_closed_queue_gets_unavailable(url: str) -> None:
    store = tampu.open(url, maintenance=False)
    store.close()
    errors: list[BaseException] = []

    def call() -> None:
        try:
            store.stats("jobs")
        except tampu.Unavailable as error:
            errors.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    assert len(errors) == 1
