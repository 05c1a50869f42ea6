"""Leases: which receipts may settle, and what happens to a message whose worker is gone."""

from datetime import timedelta

import pytest

from tampu import Ack, LeaseLost, Nack, Reject, Release, State
from tampu.broker.store import Store
from tampu.engines import port
from tampu.model.journal import lease_end
from tampu.model.message import Lease
from tests.conformance.harness import Harness, counts, inside, payloads, verbs


def _all_ways(store: Store, lease: Lease) -> None:
    """Nothing may be done with a stale receipt, one by one or in a batch."""
    for settle in (store.ack, store.nack, store.reject, store.release):
        with pytest.raises(LeaseLost) as lost:
            settle(lease)
        assert (lost.value.code, lost.value.field) == ("lease_lost", "receipt")
    with pytest.raises(LeaseLost):
        store.extend(lease, 60)
    outcomes = store.settle([Ack(lease, result=1), Nack(lease), Reject(lease), Release(lease)])
    assert all(isinstance(o.error, LeaseLost) and o.state is None for o in outcomes)


def test_a_message_of_a_crashed_worker_comes_back_when_its_lease_expires(store: Store, harness: Harness) -> None:
    message = store.publish("emails", 1)
    store.claim("emails", lease=30, worker="crashed")
    harness.clock.advance(29.999)
    assert store.claim("emails") == []
    harness.clock.advance(0.001)
    (lease,) = store.claim("emails", worker="next")
    assert (lease.id, lease.attempt) == (message.id, 2)
    assert store.get(message.id).failures[0].outcome == "lease_expired"


@pytest.mark.parametrize("way", ["ready", "dead", "cancelled", "delayed"])
def test_the_journal_says_when_a_lease_ended_that_was_reaped_late(store: Store, harness: Harness, way: str) -> None:
    if way == "delayed":
        store.queues.put("emails", group_rate=0.001, group_burst=1)
    message = store.publish(
        "emails", 1, max_attempts=1 if way == "dead" else 3, group="a" if way == "delayed" else None
    )
    (lease,) = store.claim("emails", lease=30, worker="gone")
    harness.clock.advance(10)
    extended = store.extend(lease, 60)
    if way == "cancelled":
        store.cancel(message.id)
    harness.clock.advance(600)
    assert harness.sweep() == 1
    last = store.journal(limit=100).transitions[-1]
    assert (last.verb, last.state) == ("cancel" if way == "cancelled" else "reap", way)
    assert last.at_us == harness.clock.now()
    assert extended is not None
    assert (last.detail, last.worker) == (lease_end(extended.until_us), "gone")


def test_a_message_whose_lease_expired_goes_to_the_back(store: Store, harness: Harness) -> None:
    store.publish_many("emails", ["a", "b", "c"])
    store.claim("emails", lease=10)
    harness.clock.advance(10)
    assert payloads(store.claim("emails", limit=3)) == ["b", "c", "a"]


def test_a_message_whose_lease_expired_on_the_last_attempt_is_dead(store: Store, harness: Harness) -> None:
    message = store.publish("emails", 1, max_attempts=1)
    lease = store.claim("emails", lease=10, worker="w9")[0]
    harness.clock.advance(10)
    assert harness.sweep() == 1
    seen = store.get(message.id)
    assert (seen.state, seen.reason, seen.attempts) == (State.DEAD, "lease_expired", 1)
    assert [(f.attempt, f.outcome, f.worker) for f in seen.failures] == [(1, "lease_expired", "w9")]
    with harness.unchanged(store):
        _all_ways(store, lease)


def test_stale_receipt_can_do_nothing_after_expiry(store: Store, harness: Harness) -> None:
    store.publish("emails", 1)
    stale = store.claim("emails", lease=10)[0]
    harness.clock.advance(10)
    harness.sweep()
    with harness.unchanged(store):
        _all_ways(store, stale)
    current = store.claim("emails")[0]
    with harness.unchanged(store):
        _all_ways(store, stale)
    store.ack(current)
    with harness.unchanged(store):
        _all_ways(store, stale)


def test_stale_receipt_can_do_nothing_after_release(store: Store, harness: Harness) -> None:
    store.publish("emails", 1)
    stale = store.claim("emails")[0]
    store.release(stale)
    current = store.claim("emails")[0]
    assert current.attempt == stale.attempt
    with harness.unchanged(store):
        _all_ways(store, stale)
    store.ack(current)


def test_stale_receipt_can_do_nothing_after_nack(store: Store, harness: Harness) -> None:
    store.publish("emails", 1)
    stale = store.claim("emails")[0]
    store.nack(stale, delay=0)
    store.claim("emails")
    with harness.unchanged(store):
        _all_ways(store, stale)


def test_stale_receipt_can_do_nothing_after_replay(store: Store, harness: Harness) -> None:
    """Attempt numbers start again at a replay, so they are no fence; the receipt is."""
    message = store.publish("emails", 1)
    stale = store.claim("emails")[0]
    store.reject(stale)
    store.replay("emails", ids=[message.id])
    with harness.unchanged(store):
        _all_ways(store, stale)
    current = store.claim("emails")[0]
    assert (current.id, current.attempt) == (stale.id, stale.attempt)
    with harness.unchanged(store):
        _all_ways(store, stale)


def test_stale_receipt_can_do_nothing_after_opening_again(harness: Harness) -> None:
    store = harness.open()
    store.publish("emails", 1)
    stale = store.claim("emails", lease=10)[0]
    store = harness.reopen()
    harness.clock.advance(10)
    current = store.claim("emails")[0]
    with harness.unchanged(store):
        _all_ways(store, stale)
    store.ack(current)


def test_a_lease_held_over_a_restart_is_still_good(harness: Harness) -> None:
    store = harness.open()
    store.publish("emails", 1)
    lease = store.claim("emails")[0]
    store = harness.reopen()
    store.ack(lease)
    assert store.get(lease.id).state is State.DONE


def test_extend_lets_the_lease_run_from_now(store: Store, harness: Harness) -> None:
    store.publish("emails", 1)
    lease = store.claim("emails", lease=10)[0]
    harness.clock.advance(8)
    longer = store.extend(lease, 10)
    assert longer is not None
    assert longer.until == harness.clock.time + timedelta(seconds=10)
    assert longer.receipt == lease.receipt
    harness.clock.advance(9)
    assert harness.sweep() == 0
    assert store.claim("emails") == []
    harness.clock.advance(1)
    assert store.claim("emails")[0].attempt == 2


def test_extend_without_a_time_takes_the_lease_of_the_queue(store: Store, harness: Harness) -> None:
    store.queues.put("emails", lease=100)
    store.publish("emails", 1)
    lease = store.claim("emails", lease=10)[0]
    longer = store.extend(lease)
    assert longer is not None
    assert longer.until == harness.clock.time + timedelta(seconds=100)


def test_extend_may_also_shorten(store: Store, harness: Harness) -> None:
    store.publish_many("emails", range(2))
    one, two = store.claim("emails", limit=2, lease=100)
    store.extend(one.receipt, 5)
    harness.clock.advance(5)
    assert harness.sweep() == 1
    assert store.get(one.id).state is State.READY
    assert store.get(two.id).state is State.LEASED
    harness.clock.advance(95)
    assert harness.sweep() == 1


def test_healthy_long_work_that_extends_is_never_run_twice(store: Store, harness: Harness) -> None:
    """Rescue is by lease, not by age: hours of work with a short lease are fine."""
    store.publish("emails", 1)
    lease = store.claim("emails", lease=30)[0]
    for _ in range(200):
        harness.clock.advance(29)
        store.extend(lease, 30)
        assert store.claim("emails") == []
    store.ack(lease)
    assert store.get(lease.id).attempts == 1


def test_extending_one_lease_of_a_batch_does_not_extend_the_others(store: Store, harness: Harness) -> None:
    store.publish_many("emails", ["a", "b", "c"])
    a, _, _ = store.claim("emails", limit=3, lease=10)
    store.extend(a, 60)
    harness.clock.advance(10)
    assert payloads(store.claim("emails", limit=3, lease=100)) == ["b", "c"]
    harness.clock.advance(50)
    assert payloads(store.claim("emails", limit=3)) == ["a"]


def test_no_lease_is_left_for_ever(store: Store, harness: Harness) -> None:
    store.publish_many("emails", range(10))
    for i in range(10):
        lease = store.claim("emails", lease=1 + i)[0]
        if i % 2:
            store.extend(lease, 20)
    harness.clock.advance(60)
    assert harness.sweep() == 10
    assert counts(store, "emails") == {"ready": 10}


def test_the_expiry_of_a_lease_is_one_transition(store: Store, harness: Harness) -> None:
    message = store.publish("emails", 1)
    store.claim("emails", lease=10)
    harness.clock.advance(10)
    harness.sweep()
    harness.sweep()
    assert verbs(store, message.id) == ["publish", "claim", "reap"]


def test_several_leases_of_a_claim_can_be_made_shorter_in_one_call(store: Store, harness: Harness) -> None:
    store.publish_many("jobs", range(3))
    leases = store.claim("jobs", limit=3, lease=3600)
    shorter = port.Extend("default", [("jobs", lease.receipt, 10_000_000) for lease in leases])
    (replies,) = inside(store).engine.run([shorter])
    assert isinstance(replies, list)
    assert [reply.until_us for reply in replies] == [harness.clock.now() + 10_000_000] * 3
    harness.clock.advance(11)
    assert payloads(store.claim("jobs", limit=10)) == [0, 1, 2]
