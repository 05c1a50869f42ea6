"""Leases and their fence: who may still settle, and what becomes of the message of a worker that is gone."""

from datetime import timedelta

import pytest

from tampu import Ack, LeaseLost, Nack, Reject, Release, State
from tampu.broker.queue import Queue
from tampu.model.journal import lease_end
from tampu.model.message import Lease
from tests.conformance.house import House, counts, payloads, verbs


def _all_ways(q: Queue, lease: Lease) -> None:
    """Nothing may be done with a stale receipt, one by one or in a batch."""
    for settle in (q.ack, q.nack, q.reject, q.release):
        with pytest.raises(LeaseLost) as lost:
            settle(lease)
        assert (lost.value.code, lost.value.field) == ("lease_lost", "receipt")
    with pytest.raises(LeaseLost):
        q.extend(lease, 60)
    outcomes = q.settle([Ack(lease, result=1), Nack(lease), Reject(lease), Release(lease)])
    assert all(isinstance(o.error, LeaseLost) and o.state is None for o in outcomes)


def test_crashed_consumers_message_comes_back_when_its_lease_runs_out(q: Queue, house: House) -> None:
    message = q.publish("emails", 1)
    q.claim("emails", lease=30, worker="crashed")
    house.clock.advance(29.999)
    assert q.claim("emails") == []
    house.clock.advance(0.001)
    (lease,) = q.claim("emails", worker="next")
    assert (lease.id, lease.attempt) == (message.id, 2)
    assert q.get(message.id).failures[0].outcome == "lease_expired"


@pytest.mark.parametrize("way", ["ready", "dead", "cancelled", "delayed"])
def test_the_journal_tells_when_a_lease_ended_that_nobody_noticed_for_long(q: Queue, house: House, way: str) -> None:
    if way == "delayed":
        q.queues.put("emails", group_rate=0.001, group_burst=1)
    message = q.publish("emails", 1, max_attempts=1 if way == "dead" else 3, group="a" if way == "delayed" else None)
    (lease,) = q.claim("emails", lease=30, worker="gone")
    house.clock.advance(10)
    extended = q.extend(lease, 60)
    if way == "cancelled":
        q.cancel(message.id)
    house.clock.advance(600)
    assert house.sweep() == 1
    last = q.journal(limit=100).transitions[-1]
    assert (last.verb, last.state) == ("cancel" if way == "cancelled" else "reap", way)
    assert last.at_us == house.clock.now()
    assert extended is not None
    assert (last.detail, last.worker) == (lease_end(extended.until_us), "gone")


def test_lease_that_ran_out_goes_to_the_back(q: Queue, house: House) -> None:
    q.publish_many("emails", ["a", "b", "c"])
    q.claim("emails", lease=10)
    house.clock.advance(10)
    assert payloads(q.claim("emails", limit=3)) == ["b", "c", "a"]


def test_lease_that_ran_out_on_the_last_attempt_is_dead(q: Queue, house: House) -> None:
    message = q.publish("emails", 1, max_attempts=1)
    lease = q.claim("emails", lease=10, worker="w9")[0]
    house.clock.advance(10)
    assert house.sweep() == 1
    seen = q.get(message.id)
    assert (seen.state, seen.reason, seen.attempts) == (State.DEAD, "lease_expired", 1)
    assert [(f.attempt, f.outcome, f.worker) for f in seen.failures] == [(1, "lease_expired", "w9")]
    with house.unchanged(q):
        _all_ways(q, lease)


def test_stale_receipt_can_do_nothing_after_expiry(q: Queue, house: House) -> None:
    q.publish("emails", 1)
    stale = q.claim("emails", lease=10)[0]
    house.clock.advance(10)
    house.sweep()
    with house.unchanged(q):
        _all_ways(q, stale)
    current = q.claim("emails")[0]
    with house.unchanged(q):
        _all_ways(q, stale)
    q.ack(current)
    with house.unchanged(q):
        _all_ways(q, stale)


def test_stale_receipt_can_do_nothing_after_release(q: Queue, house: House) -> None:
    q.publish("emails", 1)
    stale = q.claim("emails")[0]
    q.release(stale)
    current = q.claim("emails")[0]
    assert current.attempt == stale.attempt
    with house.unchanged(q):
        _all_ways(q, stale)
    q.ack(current)


def test_stale_receipt_can_do_nothing_after_nack(q: Queue, house: House) -> None:
    q.publish("emails", 1)
    stale = q.claim("emails")[0]
    q.nack(stale, delay=0)
    q.claim("emails")
    with house.unchanged(q):
        _all_ways(q, stale)


def test_stale_receipt_can_do_nothing_after_replay(q: Queue, house: House) -> None:
    """Attempt numbers start again at a replay, so they are no fence; the receipt is."""
    message = q.publish("emails", 1)
    stale = q.claim("emails")[0]
    q.reject(stale)
    q.replay("emails", ids=[message.id])
    with house.unchanged(q):
        _all_ways(q, stale)
    current = q.claim("emails")[0]
    assert (current.id, current.attempt) == (stale.id, stale.attempt)
    with house.unchanged(q):
        _all_ways(q, stale)


def test_stale_receipt_can_do_nothing_after_opening_again(house: House) -> None:
    q = house.open()
    q.publish("emails", 1)
    stale = q.claim("emails", lease=10)[0]
    q = house.reopen()
    house.clock.advance(10)
    current = q.claim("emails")[0]
    with house.unchanged(q):
        _all_ways(q, stale)
    q.ack(current)


def test_a_lease_held_over_a_restart_is_still_good(house: House) -> None:
    q = house.open()
    q.publish("emails", 1)
    lease = q.claim("emails")[0]
    q = house.reopen()
    q.ack(lease)
    assert q.get(lease.id).state is State.DONE


def test_extend_lets_the_lease_run_from_now(q: Queue, house: House) -> None:
    q.publish("emails", 1)
    lease = q.claim("emails", lease=10)[0]
    house.clock.advance(8)
    longer = q.extend(lease, 10)
    assert longer is not None
    assert longer.until == house.clock.time + timedelta(seconds=10)
    assert longer.receipt == lease.receipt
    house.clock.advance(9)
    assert house.sweep() == 0
    assert q.claim("emails") == []
    house.clock.advance(1)
    assert q.claim("emails")[0].attempt == 2


def test_extend_without_a_time_takes_the_queues_lease(q: Queue, house: House) -> None:
    q.queues.put("emails", lease=100)
    q.publish("emails", 1)
    lease = q.claim("emails", lease=10)[0]
    longer = q.extend(lease)
    assert longer is not None
    assert longer.until == house.clock.time + timedelta(seconds=100)


def test_extend_may_also_shorten(q: Queue, house: House) -> None:
    q.publish_many("emails", range(2))
    one, two = q.claim("emails", limit=2, lease=100)
    q.extend(one.receipt, 5)
    house.clock.advance(5)
    assert house.sweep() == 1
    assert q.get(one.id).state is State.READY
    assert q.get(two.id).state is State.LEASED
    house.clock.advance(95)
    assert house.sweep() == 1


def test_healthy_long_work_that_extends_is_never_run_twice(q: Queue, house: House) -> None:
    """Rescue is by lease, not by age: hours of work with a short lease are fine."""
    q.publish("emails", 1)
    lease = q.claim("emails", lease=30)[0]
    for _ in range(200):
        house.clock.advance(29)
        q.extend(lease, 30)
        assert q.claim("emails") == []
    q.ack(lease)
    assert q.get(lease.id).attempts == 1


def test_one_extended_lease_of_a_batch_does_not_save_the_others(q: Queue, house: House) -> None:
    q.publish_many("emails", ["a", "b", "c"])
    a, _, _ = q.claim("emails", limit=3, lease=10)
    q.extend(a, 60)
    house.clock.advance(10)
    assert payloads(q.claim("emails", limit=3, lease=100)) == ["b", "c"]
    house.clock.advance(50)
    assert payloads(q.claim("emails", limit=3)) == ["a"]


def test_no_lease_is_left_for_ever(q: Queue, house: House) -> None:
    q.publish_many("emails", range(10))
    for i in range(10):
        lease = q.claim("emails", lease=1 + i)[0]
        if i % 2:
            q.extend(lease, 20)
    house.clock.advance(60)
    assert house.sweep() == 10
    assert counts(q, "emails") == {"ready": 10}


def test_running_out_is_one_transition(q: Queue, house: House) -> None:
    message = q.publish("emails", 1)
    q.claim("emails", lease=10)
    house.clock.advance(10)
    house.sweep()
    house.sweep()
    assert verbs(q, message.id) == ["publish", "claim", "reap"]
