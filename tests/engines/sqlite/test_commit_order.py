"""One commit of the embedded engine: its journal keeps the order of a message, and a claim is not cut short."""

from collections.abc import Iterator

import pytest

import tampu
from tampu.broker.store import Store
from tests.conformance.harness import FakeClock, payloads, verbs


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def store(clock: FakeClock) -> Iterator[Store]:
    with tampu.open("memory://", maintenance=False, clock=clock) as store:
        yield store


def test_a_message_that_is_published_and_replaced_in_one_commit_has_both_in_order(store: Store) -> None:
    store.publish("jobs", 1, key="a")
    batch = [tampu.NewMessage(2, key="a"), tampu.NewMessage(3, key="b"), tampu.NewMessage(4, key="b")]
    *_, last = store.publish_many("jobs", batch)
    assert verbs(store, last.id) == ["publish", "replace"]


def test_expired_messages_between_others_do_not_cut_a_claim_short(store: Store, clock: FakeClock) -> None:
    store.publish_many("jobs", [tampu.NewMessage(n, ttl=10 if n % 2 == 0 else None) for n in range(6)])
    assert len(store.claim("jobs", limit=6, lease=20)) == 6
    clock.advance(20)
    assert payloads(store.claim("jobs", limit=3)) == [1, 3, 5]
