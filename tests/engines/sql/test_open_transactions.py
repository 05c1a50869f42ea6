"""A transaction that stays open holds up nobody but those who need the very same: least of all who sweeps for all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import tampu
from tampu.broker import access
from tampu.engines.port import Sweep
from tests.conformance.harness import FakeClock, payloads

Does = Callable[[Any], object]
"""What is done in the transaction."""


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def store(url: str, clock: FakeClock) -> Iterator[tampu.Store]:
    with tampu.open(url, maintenance=False, clock=clock) as opened:
        yield opened


@pytest.fixture
def holder(url: str, clock: FakeClock) -> Iterator[tampu.Store]:
    """Another process, which has a transaction open."""
    with tampu.open(url, maintenance=False, clock=clock) as opened:
        yield opened


@pytest.fixture
def worker(url: str, clock: FakeClock) -> Iterator[tampu.Store]:
    """A worker of another tenant."""
    with tampu.open(url, tenant="other", maintenance=False, clock=clock) as opened:
        opened.publish_many("busy", range(10))
        yield opened


def _delayed_of_a_group(store: tampu.Store) -> tuple[Does, list[Any]]:
    store.queues.put("jobs", group_order=True)
    store.publish("jobs", "late", group="g", delay=30)
    store.publish("jobs", "free", group="h", delay=30)
    return lambda tx: tx.publish("jobs", "new", group="g"), ["free", "late"]


def _delayed_where_groups_take_turns(store: tampu.Store) -> tuple[Does, list[Any]]:
    store.queues.put("jobs", ordering="fair")
    store.publish("jobs", "late", group="g", delay=30)
    return lambda tx: tx.publish("jobs", "new", group="g"), ["late", "new"]


def _part_of_a_claim_acked(store: tampu.Store) -> tuple[Does, list[Any]]:
    store.publish_many("jobs", range(3))
    first, *_ = store.claim("jobs", limit=3, lease=30)
    return lambda tx: tx.ack(first), [1, 2]


def _a_whole_claim_acked(store: tampu.Store) -> tuple[Does, list[Any]]:
    store.publish_many("jobs", range(3))
    leases = store.claim("jobs", limit=3, lease=30)
    return lambda tx: tx.settle([tampu.Ack(lease) for lease in leases]), []


def _extended(store: tampu.Store) -> tuple[Does, list[Any]]:
    store.publish("jobs", 1)
    (lease,) = store.claim("jobs", lease=30)
    return lambda tx: tx.extend(lease, 10), [1]


def _cancelled_before_it_expires(store: tampu.Store) -> tuple[Does, list[Any]]:
    ready, delayed = store.publish("jobs", 1, ttl=30), store.publish("jobs", 2, ttl=30, delay=50)
    held = store.publish("jobs", 3, ttl=30, hold="x")
    return lambda tx: [tx.cancel(message.id) for message in (ready, delayed, held)], []


def _expiring_of_a_group(store: tampu.Store) -> tuple[Does, list[Any]]:
    store.queues.put("jobs", group_order=True)
    store.publish("jobs", 1, group="g", ttl=30)
    store.publish("jobs", 2, group="g")
    return lambda tx: tx.publish("jobs", 3, group="g"), [2]


def _expiring_with_a_key(store: tampu.Store) -> tuple[Does, list[Any]]:
    store.publish("jobs", 1, key="k", ttl=30)
    return lambda tx: tx.publish("jobs", 2, key="k"), []


def _leased_with_a_key(store: tampu.Store) -> tuple[Does, list[Any]]:
    store.publish("jobs", 1, key="k")
    store.claim("jobs", lease=30)
    return lambda tx: tx.publish("jobs", 2, key="k"), [2, 1]


def _dead_of_a_group(store: tampu.Store) -> tuple[Does, list[Any]]:
    store.queues.put("jobs", group_order=True, max_attempts=1)
    store.publish("jobs", 1, group="g")
    store.publish("jobs", 2, group="g")
    store.claim("jobs", lease=30)
    return lambda tx: tx.publish("jobs", 3, group="g"), [2]


def _two_of_one_key(store: tampu.Store) -> tuple[Does, list[Any]]:
    store.publish("jobs", 1, key="k")
    (first,) = store.claim("jobs", lease=300)
    store.publish("jobs", 2, key="k")
    store.claim("jobs", lease=30)
    return lambda tx: tx.release(first), [1, 2]


SCENES = [
    _delayed_of_a_group,
    _delayed_where_groups_take_turns,
    _part_of_a_claim_acked,
    _a_whole_claim_acked,
    _extended,
    _cancelled_before_it_expires,
    _expiring_of_a_group,
    _expiring_with_a_key,
    _leased_with_a_key,
    _dead_of_a_group,
    _two_of_one_key,
]


@pytest.mark.parametrize("scene", SCENES)
def test_nobody_waits_for_a_transaction_of_another_tenant(
    store: tampu.Store,
    holder: tampu.Store,
    worker: tampu.Store,
    clock: FakeClock,
    scene: Callable[[tampu.Store], tuple[Does, list[Any]]],
) -> None:
    does, come = scene(store)
    engine: Any = access.engine(worker)
    with ThreadPoolExecutor(1) as pool:
        with holder.transaction() as tx:
            does(tx)
            clock.advance(60)
            for n in range(3):
                assert payloads(pool.submit(worker.claim, "busy").result(60)) == [n]
            (swept,) = pool.submit(engine.run, [Sweep(100)]).result(60)
            assert swept.next_us is None or swept.next_us > clock.now()  # who keeps promises need not come at once
        clock.advance(60)
        assert sorted(payloads(_drained(store)), key=str) == sorted(come, key=str)


def _drained(store: tampu.Store) -> list[tampu.Lease]:
    found = store.claim("jobs", limit=10, lease=300)
    return [*found, *store.claim("jobs", limit=10, lease=300)] if found else found


def test_what_is_not_locked_goes_on(
    store: tampu.Store, holder: tampu.Store, worker: tampu.Store, clock: FakeClock
) -> None:
    """However much of what is locked lies before it."""
    store.queues.put("jobs", group_concurrency=1)
    store.publish_many("jobs", [tampu.NewMessage(n, group="g", delay=30) for n in range(1200)])
    worker.publish("later", "now", delay=31)
    with holder.transaction() as tx:
        tx.publish("jobs", "new", group="g")
        clock.advance(60)
        found = [lease for _ in range(3) for lease in worker.claim("later")]
        assert payloads(found) == ["now"]


def test_a_clock_that_goes_back_does_not_keep_a_process_from_looking(
    store: tampu.Store, holder: tampu.Store, worker: tampu.Store, clock: FakeClock
) -> None:
    does, _ = _a_whole_claim_acked(store)
    with holder.transaction() as tx:
        does(tx)
        clock.advance(3600)
        worker.claim("busy")  # finds only what is locked, and does not look again for a moment
    clock.advance(-3500)
    worker.publish("jobs", 1)
    worker.claim("jobs", lease=1)
    clock.advance(2)
    assert payloads(worker.claim("jobs")) == [1]


def test_acks_that_are_taken_back_leave_leases_that_end(
    store: tampu.Store, holder: tampu.Store, worker: tampu.Store, clock: FakeClock
) -> None:
    store.publish_many("jobs", range(4))
    leases = store.claim("jobs", limit=4, lease=30)
    with pytest.raises(RuntimeError), holder.transaction() as tx:  # noqa: PT012 - the block fails after the acks
        tx.settle([tampu.Ack(lease) for lease in leases[:2]])
        clock.advance(31)
        worker.claim("busy")
        assert payloads(store.claim("jobs", limit=4)) == [2, 3]
        raise RuntimeError("the user's own")
    clock.advance(1)
    assert payloads(store.claim("jobs", limit=4)) == [0, 1]
