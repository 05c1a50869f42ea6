"""Connections that are lost: made again unnoticed where nothing can have happened, told where it may have."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

import tampu
from tests.conformance.house import payloads, until, waits
from tests.servers.postgres import FAST, Postgres

END_ALL = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
    " WHERE pid <> pg_backend_pid() AND application_name LIKE 'tampu%'"
)


@pytest.fixture
def own() -> Iterator[Postgres]:
    with Postgres(FAST) as made:
        yield made


def test_sessions_that_were_ended_while_idle_are_not_noticed(q: tampu.Queue, db: psycopg.Connection[Any]) -> None:
    q.publish("jobs", 1)
    for turn in range(3):
        db.execute(END_ALL)
        q.publish("jobs", turn)
        db.execute(END_ALL)
        assert q.stats("jobs").ready == turn + 2
        assert len(q.journal().transitions) == turn + 2


def test_a_waiting_claim_is_woken_by_others_after_its_sessions_were_ended(
    url: str, db: psycopg.Connection[Any]
) -> None:
    with ThreadPoolExecutor(1) as pool, tampu.open(url) as waiter, tampu.open(url, keepers=False) as other:
        waiting = pool.submit(waiter.claim, "jobs", wait=60)
        until(lambda: waits(waiter))
        db.execute(END_ALL)
        other.publish("jobs", "hello")
        assert payloads(waiting.result(30)) == ["hello"]


def test_a_restart_of_the_server_is_waited_for(own: Postgres) -> None:
    with tampu.open(own.url()) as q, ThreadPoolExecutor(1) as pool:
        q.publish("jobs", 1)
        own.stop()
        waiting = pool.submit(q.publish, "jobs", 2)
        own.start()
        assert waiting.result(30).payload == 2
        assert payloads(q.claim("jobs", limit=5)) == [1, 2]


def test_a_server_that_stays_away_is_an_error_in_bounded_time(own: Postgres, monkeypatch: Any) -> None:
    for module in ("engine", "readers"):
        monkeypatch.setattr(f"tampu.engines.postgres.{module}._PATIENCE_SECONDS", 0.2)
    with tampu.open(own.url(), keepers=False) as q:
        q.publish("jobs", 1)
        own.stop()
        for call in (lambda: q.publish("jobs", 2), lambda: q.stats("jobs"), lambda: q.claim("jobs")):
            with pytest.raises(tampu.Unavailable):
                call()


def test_a_connection_lost_in_the_commit_is_told_and_not_tried_again(
    q: tampu.Queue, db: psycopg.Connection[Any]
) -> None:
    q.publish("jobs", 1)
    engine: Any = q._core.engine
    pid = engine._db.connection.info.backend_pid
    say = engine._db.say

    def cut(sql: bytes) -> None:
        say(sql)
        if sql == b"COMMIT":
            db.execute("SELECT pg_terminate_backend(%s)", (pid,))
            until(lambda: db.execute("SELECT 1 FROM pg_stat_activity WHERE pid = %s", (pid,)).fetchone() is None)

    engine._db.say = cut
    with pytest.raises(tampu.Unavailable, match="may or may not"):
        q.publish("jobs", 2)
    q.publish("jobs", 3)
    assert payloads(q.claim("jobs", limit=5)) == [1, 3]


def test_a_wrong_password_or_database_is_told_at_once(server: Postgres) -> None:
    with pytest.raises(tampu.Unavailable):
        tampu.open(server.url(database="nowhere"))
    with pytest.raises(tampu.TampuError):
        tampu.open(server.url(user="nobody_here"))


def test_a_thread_of_a_closed_queue_gets_unavailable(url: str) -> None:
    q = tampu.open(url, keepers=False)
    q.close()
    errors: list[BaseException] = []

    def call() -> None:
        try:
            q.stats("jobs")
        except tampu.Unavailable as error:
            errors.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    assert len(errors) == 1


def test_behind_a_pooler_nothing_is_prepared_and_all_works(url: str, monkeypatch: Any, db: Any) -> None:
    """As pgbouncer in transaction mode: the session is another with each transaction."""
    monkeypatch.setattr("tampu.engines.postgres.connecting.pooled", lambda _: True)
    with tampu.open(url) as q, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(q.claim, "jobs", wait=60)
        until(lambda: waits(q))
        with tampu.open(url, keepers=False) as other:
            other.publish("jobs", "hello", key="k")
        (lease,) = waiting.result(30)
        q.ack(lease)
        engine: Any = q._core.engine
        assert engine._db.connection.execute("SELECT count(*) FROM pg_prepared_statements").fetchone() == (0,)
        assert engine._db.connection.execute("SHOW enable_seqscan").fetchone() == ("on",)
        assert [level for what, level, _ in q.check() if what == "connection"] == ["ok"]
