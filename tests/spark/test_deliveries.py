"""The delivery log of a consumer, with a clock of its own: numbers, batches, and what outlives a driver."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import tampu
from tampu.engines.port import Extend, PutDocument, Settle
from tampu.model.errors import Unavailable
from tampu.spark.queue.delivery_log import HEADS, Fenced, entries
from tests.spark.delivery_harness import LEASE, FakeClock, Shaky, documents, driver, payloads
from tests.spark.engines import opened


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def store(url: str, clock: FakeClock) -> Iterator[tampu.Store]:
    with opened(url, clock) as queue:
        yield queue


@pytest.fixture
def shaky(store: tampu.Store) -> Any:
    return Shaky(store)


def test_batches_are_numbered_without_gaps_and_settled_when_committed(store, shaky, clock):
    store.publish_many("emails", range(2500))
    log = driver(shaky, clock)
    assert log.latest(0, 1200) == 1200
    assert payloads(store, log, 0, 1200) == list(range(1200))
    assert store.stats("emails").leased == 1200
    assert log.latest(1200, 5000) == 2500
    assert store.stats("emails").done == 1200
    assert payloads(store, log, 1200, 2500) == list(range(1200, 2500))
    assert log.latest(2500, 5000) == 2500
    assert store.stats("emails").done == 2500
    assert documents(store) == {HEADS: 1}


def test_the_same_start_gets_the_same_batch_and_leases_no_more(store, shaky, clock):
    store.publish_many("emails", range(30))
    log = driver(shaky, clock)
    assert [log.latest(0, 10) for _ in range(3)] == [10, 10, 10]
    assert store.stats("emails").leased == 10
    log.leave()
    again = driver(shaky, clock)
    assert again.pieces(0, 10)
    assert again.latest(0, 10) == 10
    assert payloads(store, again, 0, 10) == list(range(10))


def test_a_batch_is_cut_in_parts_that_cover_it_once(store, shaky, clock):
    store.publish_many("emails", range(2300))
    log = driver(shaky, clock)
    end = log.latest(0, 5000)
    for least in (1, 3, 7, 50):
        parts = log.pieces(0, end, least)
        assert len(parts) >= least
        numbers = [number for part in parts for number in range(part.low, part.high + 1)]
        assert numbers == list(range(1, 2301))
    assert log.pieces(0, 0) == []


def test_large_messages_make_a_smaller_batch(store, shaky, clock):
    store.queues.put("emails", max_payload=20 << 20)
    for _ in range(12):
        store.publish("emails", b"x" * (10 << 20))
    log = driver(shaky, clock)
    end = log.latest(0, 5000)
    assert 0 < end < 12
    while end < 12:
        end = log.latest(end, 5000)
    log.latest(end, 5000)
    assert store.stats("emails").done == 12


def test_an_empty_or_paused_queue_gives_no_batch(store, shaky, clock):
    log = driver(shaky, clock)
    assert log.latest(0, 10) == 0
    store.publish("emails", 1)
    store.pause("emails")
    assert log.latest(0, 10) == 0
    store.resume("emails")
    assert log.latest(0, 10) == 1


def test_a_write_that_fails_after_the_claim_does_not_lease_twice(store, shaky, clock):
    store.publish_many("emails", range(20))
    log = driver(shaky, clock)
    log.own()
    shaky.fail = PutDocument
    with pytest.raises(Unavailable):
        log.latest(0, 10)
    assert log.latest(0, 10) == 10
    assert store.stats("emails").leased == 10


def test_what_the_store_could_not_be_asked_about_is_not_given_up(store, shaky, clock):
    """Neither the leases that were to be extended, nor the messages that were to be settled."""
    store.publish_many("emails", range(3))
    log = driver(shaky, clock)
    log.latest(0, 10)
    clock.pass_(LEASE / 2)
    shaky.away = Extend
    with pytest.raises(Unavailable):
        log.latest(0, 10)
    assert log.latest(0, 10) == 3
    clock.pass_(LEASE * 0.75)  # longer than the lease was at first
    shaky.away = Settle
    with pytest.raises(Unavailable):
        log.latest(3, 10)
    log.latest(3, 10)
    assert (store.stats("emails").done, log.lost) == (3, 0)


def test_a_lost_checkpoint_goes_on_with_the_log(store, shaky, clock):
    store.publish_many("emails", range(20))
    log = driver(shaky, clock)
    log.latest(0, 10)
    log.latest(10, 10)
    assert payloads(store, log, 0, 20) == list(range(10, 20))
    assert log.latest(0, 10) == 20


def test_a_store_behind_its_checkpoint_numbers_on(store, shaky, clock):
    store.publish_many("emails", range(3))
    log = driver(shaky, clock)
    assert log.latest(500, 10) == 503
    assert payloads(store, log, 500, 503) == [0, 1, 2]


def test_a_task_of_a_fenced_driver_does_not_read_an_empty_batch(store, shaky, clock):
    store.publish("emails", 1)
    log = driver(shaky, clock)
    log.latest(0, 10)
    piece = log.pieces(0, 1)[0]
    log.latest(1, 10)
    with pytest.raises(Fenced, match="no longer in the log"):
        entries(shaky, "default", piece)


def test_asking_again_for_a_batch_keeps_its_leases(store, shaky, clock):
    store.publish_many("emails", range(3))
    log = driver(shaky, clock)
    log.latest(0, 10)
    for ask in (lambda: log.latest(0, 10), lambda: log.pieces(0, 3)):
        clock.pass_(LEASE / 2)
        ask()
        clock.pass_(LEASE / 2 + 1)
        assert store.claim("emails", limit=10) == []
