"""Limits: depth, messages in flight, claim rate."""

import pytest

from tampu import Ack, NewMessage, QueueFull
from tampu.broker.store import Store
from tampu.engines.port import Claim, QueueClaim, RetryLater
from tests.conformance.harness import Harness, counts, inside


def test_max_depth_refuses_what_does_not_fit(store: Store, harness: Harness) -> None:
    store.queues.put("emails", max_depth=3)
    store.publish_many("emails", range(3))
    with harness.unchanged(store), pytest.raises(QueueFull) as refused:
        store.publish("emails", 4)
    assert (refused.value.code, refused.value.field) == ("queue_full", "queue")


def test_max_depth_counts_all_that_has_not_ended(store: Store) -> None:
    store.queues.put("emails", max_depth=4)
    store.publish("emails", "leased")
    lease = store.claim("emails")[0]
    store.publish("emails", "ready")
    store.publish("emails", "delayed", delay=60)
    store.publish("emails", "held", hold="x")
    with pytest.raises(QueueFull):
        store.publish("emails", "one too many")
    store.ack(lease)
    store.publish("emails", "fits again")


def test_dead_letters_take_no_room(store: Store) -> None:
    store.queues.put("emails", max_depth=1)
    for n in range(3):
        store.publish("emails", n)
        store.reject(store.claim("emails")[0])
    assert counts(store, "emails") == {"dead": 3}


@pytest.mark.parametrize("special", [False, True], ids=["plain", "with keys"])
def test_queue_full_in_the_middle_of_a_batch_stores_nothing(store: Store, harness: Harness, special: bool) -> None:
    store.queues.put("emails", max_depth=5)
    store.publish_many("emails", range(2))
    batch = [NewMessage(n, key=f"k{n}" if special else None) for n in range(4)]
    with harness.unchanged(store), pytest.raises(QueueFull):
        store.publish_many("emails", batch)
    store.publish_many("emails", batch[:3])
    assert store.stats("emails").depth == 5


def test_a_refused_batch_makes_no_queue(store: Store, harness: Harness) -> None:
    store.queues.put("*", max_depth=2)
    with harness.unchanged(store), pytest.raises(QueueFull):
        store.publish_many("new", range(3))
    with harness.unchanged(store), pytest.raises(QueueFull):
        store.publish_many("new", [NewMessage(n, key=str(n)) for n in range(3)])
    assert store.queues.list() == []


def test_raising_max_depth_lets_more_in(store: Store) -> None:
    store.queues.put("emails", max_depth=1)
    store.publish("emails", 1)
    store.queues.put("emails", max_depth=0)
    store.publish_many("emails", range(100))


def test_max_in_flight_counts_across_workers(store: Store, harness: Harness) -> None:
    store.queues.put("emails", max_in_flight=5)
    store.publish_many("emails", range(20))
    other = harness.open()
    first = store.claim("emails", limit=3, worker="w1")
    second = other.claim("emails", limit=10, worker="w2")
    assert (len(first), len(second)) == (3, 2)
    assert store.claim("emails", limit=10, worker="w3") == []
    other.ack(first[0])
    store.nack(second[0])
    assert len(store.claim("emails", limit=10)) == 2


def test_an_expired_lease_makes_room(store: Store, harness: Harness) -> None:
    store.queues.put("emails", max_in_flight=1)
    store.publish_many("emails", range(2))
    store.claim("emails", lease=10)
    assert store.claim("emails") == []
    harness.clock.advance(10)
    assert len(store.claim("emails", limit=5)) == 1


def test_max_in_flight_is_per_queue(store: Store) -> None:
    store.queues.put("emails", max_in_flight=1)
    store.publish_many("emails", range(3))
    store.publish_many("letters", range(3))
    leases = store.claim(["emails", "letters"], limit=10)
    assert [lease.queue for lease in leases] == ["emails", "letters", "letters", "letters"]


def test_a_claim_beyond_the_rate_gets_fewer_messages(store: Store, harness: Harness) -> None:
    store.queues.put("emails", rate=10)
    store.publish_many("emails", range(100))
    assert len(store.claim("emails", limit=50)) == 10
    assert store.claim("emails", limit=50) == []
    harness.clock.advance(0.5)
    assert len(store.claim("emails", limit=50)) == 5
    harness.clock.advance(3600)
    assert len(store.claim("emails", limit=50)) == 10


def test_the_rate_counts_across_workers(store: Store, harness: Harness) -> None:
    store.queues.put("emails", rate=4)
    store.publish_many("emails", range(100))
    other = harness.open()
    got = 0
    for _ in range(10):
        got += len(store.claim("emails", limit=3)) + len(other.claim("emails", limit=3))
        harness.clock.advance(1)
    assert 36 <= got <= 44


def test_rate_below_one_a_second_lets_one_through_at_a_time(store: Store, harness: Harness) -> None:
    store.queues.put("emails", rate=0.1)
    store.publish_many("emails", range(5))
    assert len(store.claim("emails", limit=5)) == 1
    harness.clock.advance(9)
    assert store.claim("emails", limit=5) == []
    harness.clock.advance(1)
    assert len(store.claim("emails", limit=5)) == 1


def test_burst_says_how_many_may_come_at_once(store: Store, harness: Harness) -> None:
    store.queues.put("emails", rate=1, burst=5)
    store.publish_many("emails", range(50))
    assert len(store.claim("emails", limit=50)) == 5
    harness.clock.advance(2)
    assert len(store.claim("emails", limit=50)) == 2
    harness.clock.advance(3600)
    assert len(store.claim("emails", limit=50)) == 5


def test_an_empty_claim_costs_no_rate(store: Store) -> None:
    store.queues.put("emails", rate=2)
    for _ in range(10):
        assert store.claim("emails", limit=2) == []
    store.publish_many("emails", range(5))
    assert len(store.claim("emails", limit=5)) == 2


def test_limits_of_one_queue_do_not_bind_another(store: Store) -> None:
    store.queues.put("slow", rate=1, max_in_flight=1, max_depth=1)
    store.publish_many("fast", range(30))
    assert len(store.claim(["slow", "fast"], limit=30)) == 30


def test_a_waiting_claim_is_woken_by_the_end_of_a_lease_in_a_limited_queue_only(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    woken: list[dict[tuple[str, str], int]] = []
    waiting = inside(store).waiting
    waiting.in_use = True  # as if somebody waited
    monkeypatch.setattr(waiting, "wake", lambda queues: woken.append(dict(queues)))
    store.queues.put("emails", max_in_flight=2)
    for queue in ("emails", "letters"):
        store.publish_many(queue, range(4))
        leases = store.claim(queue, limit=2)
        woken.clear()
        store.settle([Ack(lease) for lease in leases])
        assert [found for found in woken if found] == ([{("default", queue): 2}] if queue == "emails" else [])


def test_a_claim_at_a_used_up_rate_knows_when_to_try_again(store: Store, harness: Harness) -> None:
    store.queues.put("emails", rate=4, burst=1)
    store.publish_many("emails", range(3))
    assert len(store.claim("emails", limit=3)) == 1
    call = Claim(store.tenant, [QueueClaim("emails", 30_000_000, rate=4, burst=1)], 1)
    for waited, left in ((0, 250_000), (0.1, 150_000), (0.1, 50_000)):
        harness.clock.advance(waited)
        assert inside(store).engine.run([call]) == [RetryLater(left)]
    harness.clock.advance(0.05)
    assert len(store.claim("emails")) == 1
