"""claim: which messages are delivered, in which batch, and what a lease contains."""

from datetime import timedelta

from tampu import State
from tampu.broker.store import Store
from tests.conformance.harness import Harness, counts, payloads


def test_claim_leases_and_counts_an_attempt(store: Store, harness: Harness) -> None:
    message = store.publish("emails", "hello")
    (lease,) = store.claim("emails", lease=45, worker="w1")
    assert (lease.id, lease.payload, lease.queue, lease.worker) == (message.id, "hello", "emails", "w1")
    assert lease.attempt == lease.message.attempts == 1
    assert lease.until == harness.clock.time + timedelta(seconds=45)
    assert lease.message.state is State.LEASED
    seen = store.get(message.id)
    assert (seen.state, seen.attempts) == (State.LEASED, 1)
    assert counts(store, "emails") == {"leased": 1}


def test_a_leased_message_is_not_delivered_again(store: Store) -> None:
    store.publish("emails", 1)
    assert len(store.claim("emails", limit=10)) == 1
    assert store.claim("emails", limit=10) == []


def test_claim_gives_at_most_the_limit(store: Store) -> None:
    store.publish_many("emails", range(10))
    assert payloads(store.claim("emails", limit=3)) == [0, 1, 2]
    assert payloads(store.claim("emails")) == [3]
    assert payloads(store.claim("emails", limit=100)) == [4, 5, 6, 7, 8, 9]
    assert store.claim("emails", limit=100) == []


def test_claim_from_a_queue_that_does_not_exist_is_empty_and_creates_none(store: Store) -> None:
    assert store.claim("nowhere") == []
    assert store.queues.list() == []


def test_claim_from_several_queues_takes_the_first_named_first(store: Store) -> None:
    store.publish_many("low", ["l1", "l2"])
    store.publish_many("high", ["h1", "h2"])
    leases = store.claim(["high", "nowhere", "low"], limit=3)
    assert payloads(leases) == ["h1", "h2", "l1"]
    assert [lease.queue for lease in leases] == ["high", "high", "low"]
    for lease in leases:
        store.ack(lease)
    assert payloads(store.claim(("high", "low"), limit=3)) == ["l2"]


def test_the_same_queue_named_twice_delivers_once(store: Store) -> None:
    store.publish_many("emails", range(4))
    assert payloads(store.claim(["emails", "emails"], limit=10)) == [0, 1, 2, 3]


def test_receipts_never_repeat(store: Store) -> None:
    store.publish_many("emails", range(5))
    seen = set()
    for _ in range(20):
        leases = store.claim("emails", limit=5)
        seen |= {lease.receipt for lease in leases}
        for lease in leases:
            store.release(lease)
    assert len(seen) == 100


def test_receipts_do_not_repeat_after_opening_again(harness: Harness) -> None:
    store = harness.open()
    store.publish("emails", 1)
    first = store.claim("emails")[0]
    store.release(first)
    store = harness.reopen()
    second = store.claim("emails")[0]
    assert second.receipt != first.receipt


def test_lease_time_is_that_of_the_queue_unless_given(store: Store, harness: Harness) -> None:
    store.publish_many("emails", range(3))
    assert store.claim("emails")[0].until == harness.clock.time + timedelta(seconds=30)
    store.queues.put("emails", lease=timedelta(minutes=5))
    assert store.claim("emails")[0].until == harness.clock.time + timedelta(minutes=5)
    assert store.claim("emails", lease=0.5)[0].until == harness.clock.time + timedelta(seconds=0.5)


def test_two_workers_never_get_the_same_message(store: Store, harness: Harness) -> None:
    other = harness.open()
    made = {m.id for m in store.publish_many("emails", range(50))}
    got = [lease.id for i in range(20) for lease in (store, other)[i % 2].claim("emails", limit=3, worker=f"w{i}")]
    assert len(got) == 50
    assert set(got) == made


def test_a_claim_delivers_what_is_due(store: Store, harness: Harness) -> None:
    """Nobody has to sweep: memory or a background loop is never the only way to durable work."""
    store.publish("emails", "delayed", delay=10)
    store.publish("emails", "leased")
    store.claim("emails", lease=10)
    harness.clock.advance(10)
    assert sorted(payloads(store.claim("emails", limit=10))) == ["delayed", "leased"]


def test_a_retried_message_carries_its_last_error(store: Store) -> None:
    store.publish("emails", 1)
    first = store.claim("emails")[0]
    assert first.message.last_error is None
    store.nack(first, error="SMTP said 421", delay=0)
    assert store.claim("emails")[0].message.last_error == "SMTP said 421"
