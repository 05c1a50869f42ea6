"""A whole store moves from each engine to each: what arrives is what was there."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

import tampu
from tampu.model.message import State
from tests.broker.transfer import stores
from tests.broker.transfer.stores import (
    PAIRS,
    ROUND,
    TENANTS,
    URLS,
    contents,
    documents_of,
    drained,
    move,
    opened,
    requests,
)
from tests.conformance.harness import FakeClock

QUEUES = ("fifo", "by-priority", "by-ageing", "by-deadline", "by-group", "by-turns")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.mark.parametrize(("old", "new"), PAIRS)
def test_a_whole_store_arrives_as_it_was(old: str, new: str, tmp_path: Path, clock: FakeClock) -> None:
    source, target = URLS[old](tmp_path), URLS[new](tmp_path)
    stores.fill(source, clock)
    with opened(source, clock=clock) as (here,):
        there_was, documents = contents(here), documents_of(here)
        asked = {tenant: requests(here, tenant) for tenant in TENANTS}
    report = move(source, target, clock, ended=True)
    assert report.notes == []
    assert report.stored == report.total == sum(map(len, there_was.values()))
    for queue in report.queues:
        assert queue.source == queue.target
        assert sum(queue.source.values()) == sum(
            len(items) for (t, store, _), items in there_was.items() if (t, store) == (queue.tenant, queue.queue)
        )
    with opened(source, target, clock=clock) as (here, there):
        assert contents(there) == there_was
        assert contents(here) == there_was
        assert documents_of(there) == documents
        assert here.queues() == there.queues()
        assert {tenant: requests(there, tenant) for tenant in TENANTS} == asked
    with tampu.open(target, clock=clock, maintenance=False) as store:
        assert store.publish("keyed", "v2", key="k", idempotency_key="i2").duplicate
        assert store.publish("keyed", "only default", idempotency_key="i3").duplicate
        with pytest.raises(tampu.IdempotencyConflict):
            store.publish("keyed", "another", idempotency_key="i3")
        (dead,) = store.messages("states", state="dead")
        assert [f.outcome for f in store.get(dead.id).failures] == ["nack", "nack"]
        (done,) = store.messages("states", state="done")
        assert store.get(done.id).result == {"n": 1}
    with tampu.open(source, clock=clock, maintenance=False) as store:
        assert {stats.status for stats in store.stats()} == {"closed"}
        with pytest.raises(tampu.QueueClosed):
            store.publish("fifo", "too late")
        assert store.claim("fifo") == []


@pytest.mark.parametrize(("old", "new"), ROUND)
def test_delivery_goes_on_in_the_same_order(old: str, new: str, tmp_path: Path, clock: FakeClock) -> None:
    source, target = URLS[old](tmp_path), URLS[new](tmp_path)
    stores.fill(source, clock)
    move(source, target, clock)
    for tenant in TENANTS:
        delivered = drained(target, tenant, QUEUES, clock)
        assert {queue: len(payloads) for queue, payloads in delivered.items()} == dict.fromkeys(QUEUES, 12)
        assert delivered == drained(source, tenant, QUEUES, clock)


@pytest.mark.parametrize(("old", "new"), ROUND)
def test_ten_thousand_messages_keep_their_ids_and_their_order(old: str, new: str, tmp_path: Path) -> None:
    source, target = URLS[old](tmp_path), URLS[new](tmp_path)
    with tampu.open(source, maintenance=False) as store:
        ids = [m.id for m in store.publish_many("jobs", range(10_000))]
    report = move(source, target, None)
    assert report.stored == 10_000
    with opened(target, clock=None) as (there,):
        assert sorted(stores.imported(there)) == sorted(("default", id) for id in ids)
    with tampu.open(target, maintenance=False) as store:
        assert [lease.id for lease in store.claim("jobs", limit=10_000)] == ids


def test_ended_messages_stay_unless_they_are_asked_for(tmp_path: Path, clock: FakeClock) -> None:
    source, target = URLS["file"](tmp_path), URLS["redis"](tmp_path)
    stores.fill(source, clock)
    move(source, target, clock)
    with opened(source, target, clock=clock) as (here, there):
        assert contents(there) == contents(here, ended=False)
        assert {state for _, _, state in contents(here)} - {state for _, _, state in contents(there)} == {
            State.DONE,
            State.CANCELLED,
        }
    with tampu.open(target, clock=clock, maintenance=False) as store:
        assert store.publish("keyed", "v1", key="k", idempotency_key="i1").duplicate


@pytest.mark.parametrize("old", ["file", "postgres", "redis", "mariadb"])
def test_idempotency_keys_of_messages_that_are_gone_come_too(old: str, tmp_path: Path, clock: FakeClock) -> None:
    source, target = URLS[old](tmp_path), URLS["redis"](tmp_path)
    with tampu.open(source, clock=clock, maintenance=False) as store:
        gone = store.publish("jobs", "once", idempotency_key="i")
        store.publish("more", "stays", idempotency_key="j")
        store.purge("jobs", state="ready")
    report = move(source, target, clock)
    assert (report.requests, report.notes) == (2, [])
    with tampu.open(target, clock=clock, maintenance=False) as store:
        again = store.publish("jobs", "once", idempotency_key="i")
        assert (again.id, again.duplicate) == (gone.id, True)


def test_a_key_of_an_unknown_queue_is_reported(tmp_path: Path, clock: FakeClock) -> None:
    source, target = URLS["file"](tmp_path), URLS["redis"](tmp_path)
    with tampu.open(source, clock=clock, maintenance=False) as store:
        store.publish("jobs", "once", idempotency_key="i")
        store.purge("jobs", state="ready")
    db = sqlite3.connect(source)
    db.executescript(
        "UPDATE tampu_idempotency SET tenant = 'default', key = 'i';"
        "ALTER TABLE tampu_held DROP COLUMN lease;"
        "DROP TABLE tampu_correlation;"
        "ALTER TABLE tampu_leased DROP COLUMN since;"
        "ALTER TABLE tampu_leased DROP COLUMN extended;"
        "UPDATE tampu_meta SET value = 3 WHERE name = 'schema'"
    )
    db.close()
    report = move(source, target, clock)
    assert report.requests == 0
    assert report.notes == [
        "1 idempotency keys of an earlier version are not copied: their messages are gone, and their queue is unknown"
    ]
