"""While a transaction is held open anywhere, dead rows stay; claims step around them and still find everything."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

import tampu
from tampu.broker import access
from tampu.engines.postgres import skip_dead_rows
from tests.conformance.harness import payloads
from tests.servers.postgres import Postgres


@pytest.fixture
def held(server: Postgres) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(server.url()) as other:
        other.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        other.execute("SELECT 1")
        yield other


@pytest.fixture
def store(url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[tampu.Store]:
    """Steps around dead rows from the first claim on."""
    monkeypatch.setattr(skip_dead_rows, "SLOW_SECONDS", -1.0)
    monkeypatch.setattr(skip_dead_rows, "DEAD", -1)
    monkeypatch.setattr(skip_dead_rows, "TIMES", 1_000_000)
    with tampu.open(url, maintenance=False) as opened:
        opened.publish("jobs", "first")
        opened.ack(opened.claim("jobs")[0])
        engine: Any = access.engine(opened)
        assert engine.driver._dead_rows._active()
        yield opened


def _pass(store: tampu.Store, count: int) -> None:
    for start in range(0, count, 1000):
        store.publish_many("jobs", range(start, start + 1000))
        leases = store.claim("jobs", limit=1000)
        assert payloads(leases) == list(range(start, start + 1000))
        store.settle([tampu.Ack(lease) for lease in leases])


def _touched(store: tampu.Store) -> int:
    """Pages that the statement of a claim touches when it begins where the last one ended."""
    engine: Any = access.engine(store)
    number = engine.registry.numbers["default", "jobs"]
    head = engine.driver._dead_rows.head(number)
    with psycopg.connect(engine.place.conninfo, autocommit=True) as db:
        db.execute("SET enable_seqscan = off")
        db.execute("SET enable_sort = off")
        text = f"""EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT * FROM "{engine.place.schema}".ready
            WHERE q = {number} AND (rank, pos) > (0, {head}) ORDER BY rank, pos LIMIT 10"""
        ((explained,),) = db.execute(text.encode()).fetchall()
    plan = explained[0]["Plan"]
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


def test_a_claim_does_not_look_at_what_was_delivered_before(store: tampu.Store, held: Any) -> None:
    _pass(store, 5000)
    store.publish_many("jobs", range(10))
    assert _touched(store) < 20
    assert payloads(store.claim("jobs", limit=20)) == list(range(10))


def test_what_comes_back_and_what_is_more_urgent_is_found(store: tampu.Store, held: Any) -> None:
    _pass(store, 1000)
    store.publish_many("jobs", ["a", "b"])
    (a,) = store.claim("jobs")
    store.release(a)
    store.nack(store.claim("jobs")[0], delay=0)
    assert sorted(payloads(store.claim("jobs", limit=5))) == ["a", "b"]
    store.queues.put("jobs", ordering="priority")
    store.publish("jobs", "plain")
    store.publish("jobs", "urgent", priority=3)
    assert payloads(store.claim("jobs", limit=5)) == ["urgent", "plain"]


def test_another_ordering_is_followed_at_once(store: tampu.Store, held: Any) -> None:
    store.queues.put("jobs", ordering="priority")
    store.publish("jobs", "low", priority=-5)
    store.publish("jobs", "plain")
    assert payloads(store.claim("jobs")) == ["plain"]
    store.queues.put("jobs", ordering="fifo")
    store.publish("jobs", "last")
    assert payloads(store.claim("jobs", limit=5)) == ["low", "last"]


def test_what_is_committed_late_is_delivered(store: tampu.Store, held: Any, server: Postgres) -> None:
    with psycopg.connect(server.url()) as mine:
        mine.execute("SELECT 1")
        with store.transaction(mine) as tx:
            tx.publish("jobs", "late")
        _pass(store, 1000)
        mine.commit()
    assert payloads(store.claim("jobs", limit=5)) == ["late"]


def test_delays_and_leases_that_fall_due_are_seen(store: tampu.Store, held: Any, url: str) -> None:
    _pass(store, 1000)
    with tampu.open(url, maintenance=False) as other:
        other.publish("jobs", "soon", delay=0.02)
        other.publish("jobs", "leased")
        other.claim("jobs", lease=0.02)
    time.sleep(0.05)  # noqa: TID251 - the server's own clock has to move
    assert sorted(payloads(store.claim("jobs", limit=5))) == ["leased", "soon"]


def test_the_whole_index_is_looked_at_again_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("tampu.engines.postgres.skip_dead_rows.time.monotonic", lambda: now)
    one, never = skip_dead_rows.DeadRowSkip(), (None, None, None)

    def claim(seconds: float, dead: int) -> None:
        nonlocal now
        one.begin()
        one.saw_due(5, (None, 3, 9))
        now += seconds
        one.claimed(1, 7, lambda: dead)

    claim(0.001, 10**6)
    assert (one.begin(), one.head(1)) == (never, None)
    claim(0.1, 5)
    assert (one.begin(), one.head(1)) == (never, None)
    claim(0.1, 10**6)
    assert one.begin() == (5, 3, 5)
    assert (one.head(1), one.head(2)) == (7, None)
    now += 0.1 * skip_dead_rows.TIMES + 0.01
    assert (one.begin(), one.head(1)) == (never, None)
    claim(0.1, 10**6)
    one.forget()
    assert (one.begin(), one.head(1)) == (never, None)


def test_what_was_taken_and_given_back_is_not_behind_the_head() -> None:
    one = skip_dead_rows.DeadRowSkip()
    one._until = float("inf")
    one.begin()
    one.claimed(1, 7, lambda: 0)
    one.rolled_back()
    one.begin()
    assert one.head(1) is None
