"""Claims of which nothing is left leave nothing to look at: a worker that has nothing to do is not woken for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

import tampu
from tampu import Ack, Lease, Release
from tampu.broker import access
from tests.conformance.harness import FakeClock, payloads


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def store(url: str, clock: FakeClock) -> Iterator[tampu.Store]:
    with tampu.open(url, maintenance=False, clock=clock) as opened:
        yield opened


def _one_by_one_with_results(store: tampu.Store, leases: list[Lease]) -> None:
    for lease in leases:
        store.ack(lease, result={"done": True})


def _together_with_results(store: tampu.Store, leases: list[Lease]) -> None:
    store.settle([Ack(lease, result=1) for lease in leases])


def _in_parts(store: tampu.Store, leases: list[Lease]) -> None:
    store.settle([Ack(lease) for lease in leases[5:]])
    store.settle([Ack(lease) for lease in leases[:5]])


def _backwards(store: tampu.Store, leases: list[Lease]) -> None:
    store.settle([Ack(lease) for lease in reversed(leases)])


def _in_all_ways(store: tampu.Store, leases: list[Lease]) -> None:
    store.settle([Ack(lease) for lease in leases[:5]])
    store.settle([Ack(leases[0]), Ack(leases[5], result=1)])  # the first is repeated
    store.reject(leases[6], "no")
    store.settle([Release(leases[7]), Ack(leases[8])])
    store.ack(leases[9])


def _in_the_users_own_transaction(store: tampu.Store, leases: list[Lease]) -> None:
    store.settle([Ack(lease) for lease in leases[1:]])
    with store.transaction() as tx:
        tx.ack(leases[0], result=1)


@pytest.mark.parametrize(
    "settle",
    [
        _one_by_one_with_results,
        _together_with_results,
        _in_parts,
        _backwards,
        _in_all_ways,
        _in_the_users_own_transaction,
    ],
)
def test_nothing_is_due_when_a_claim_is_settled(
    store: tampu.Store, settle: Callable[[tampu.Store, list[Lease]], None]
) -> None:
    store.publish_many("jobs", range(20))
    store.settle([Ack(lease) for lease in store.claim("jobs", limit=10)])  # whichever way is tried first
    leases = store.claim("jobs", limit=10)
    assert access.engine(store).next_due() is not None
    settle(store, leases)
    assert access.engine(store).next_due() is None


def test_what_is_left_of_a_claim_comes_back(store: tampu.Store, clock: FakeClock) -> None:
    store.publish_many("jobs", range(6))
    leases = store.claim("jobs", limit=6, lease=30)
    store.settle([Ack(lease) for lease in leases[:2]])
    store.settle([Ack(lease) for lease in leases[:2]])  # settled once, however often it is repeated
    store.ack(leases[2], result=1)
    store.settle([Ack(lease) for lease in leases[:3]])
    assert access.engine(store).next_due() is not None
    clock.advance(31)
    assert payloads(store.claim("jobs", limit=6)) == [3, 4, 5]


def test_a_settlement_that_is_taken_back_leaves_the_claim(store: tampu.Store, clock: FakeClock) -> None:
    store.publish_many("jobs", range(3))
    leases = store.claim("jobs", limit=3, lease=30)
    with pytest.raises(RuntimeError), store.transaction() as tx:  # noqa: PT012 - the block fails after the acks
        for lease in leases:
            tx.ack(lease)
        raise RuntimeError("the user's own")
    store.ack(leases[0])
    clock.advance(31)
    assert payloads(store.claim("jobs", limit=3)) == [1, 2]


def test_extended_leases_are_looked_at_until_they_are_settled(store: tampu.Store, clock: FakeClock) -> None:
    store.publish_many("jobs", range(3))
    leases = store.claim("jobs", limit=3, lease=30)
    for lease in leases:
        store.extend(lease, 100)
    clock.advance(31)
    assert store.claim("jobs") == []  # and the claim has been looked at
    store.settle([Ack(lease, result=1) for lease in leases[:2]])
    clock.advance(101)
    assert payloads(store.claim("jobs", limit=3)) == [2]
