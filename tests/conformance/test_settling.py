"""settle: ack, nack, reject, release; where each leads, once, however often it is said."""

from datetime import timedelta
from typing import Any

import pytest

import tampu
from tampu import Ack, LeaseLost, Nack, Reject, Release, State
from tampu.broker.queue import Queue
from tampu.model.message import Lease
from tests.conformance.house import House, counts, payloads, verbs


def _leased(q: Queue, payload: object = 1, **fields: object) -> Lease:
    q.publish("emails", payload, **fields)  # type: ignore[arg-type]  # a bag of fields
    return q.claim("emails", worker="w1")[0]


def test_ack_ends_the_message_as_done(q: Queue, house: House) -> None:
    lease = _leased(q)
    q.ack(lease)
    seen = q.get(lease.id)
    assert (seen.state, seen.attempts, seen.ended_at) == (State.DONE, 1, house.clock.time)
    assert counts(q, "emails") == {"done": 1}
    assert q.claim("emails") == []


def test_nack_waits_for_the_backoff_of_the_queue(q: Queue, house: House) -> None:
    q.queues.put("emails", backoff=[10, 20])
    lease = _leased(q)
    assert q.nack(lease, error="boom").state is State.DELAYED
    seen = q.get(lease.id)
    assert (seen.state, seen.attempts, seen.last_error) == (State.DELAYED, 1, "boom")
    assert seen.run_at == house.clock.time + timedelta(seconds=10)
    house.clock.advance(10)
    again = q.claim("emails")[0]
    q.nack(again)
    assert q.get(lease.id).run_at == house.clock.time + timedelta(seconds=20)


def test_nack_with_a_delay_waits_that_long(q: Queue, house: House) -> None:
    lease = _leased(q)
    q.nack(lease, delay=timedelta(hours=48))
    assert q.get(lease.id).run_at == house.clock.time + timedelta(hours=48)
    house.clock.advance(48 * 3600 - 1)
    assert q.claim("emails") == []
    house.clock.advance(1)
    assert q.claim("emails")[0].attempt == 2


def test_nack_with_no_delay_goes_to_the_back_of_the_queue(q: Queue) -> None:
    first = _leased(q, "first")
    q.publish("emails", "second")
    assert q.nack(first, delay=0).state is State.READY
    assert payloads(q.claim("emails", limit=2)) == ["second", "first"]


def test_reject_is_dead_now_for_the_reason_given(q: Queue) -> None:
    lease = _leased(q)
    assert q.reject(lease, reason="schema_invalid", error="no field 'to'").state is State.DEAD
    seen = q.get(lease.id)
    assert (seen.state, seen.reason, seen.last_error, seen.attempts) == (
        State.DEAD, "schema_invalid", "no field 'to'", 1,
    )  # fmt: skip
    assert q.get(q.messages("emails", state="dead").messages[0].id).reason == "schema_invalid"


def test_reject_without_a_reason_says_unrecoverable(q: Queue) -> None:
    lease = _leased(q)
    q.reject(lease)
    assert q.get(lease.id).reason == "unrecoverable"


def test_release_gives_back_uncounted(q: Queue) -> None:
    lease = _leased(q)
    assert q.release(lease).state is State.READY
    assert q.get(lease.id).attempts == 0
    assert q.get(lease.id).failures == ()
    assert q.claim("emails")[0].attempt == 1


def test_settling_works_with_the_receipt_alone(q: Queue) -> None:
    for settle in (q.ack, q.nack, q.reject, q.release):
        lease = _leased(q)
        settle(lease.receipt)
        assert q.get(lease.id).state is not State.LEASED
        q.purge("emails", state=[s for s in State if s is not State.LEASED])


@pytest.mark.parametrize("verb", ["ack", "nack", "reject", "release"])
@pytest.mark.parametrize("delay", [None, 0])
def test_repeating_a_successful_settle_answers_the_same(q: Queue, house: House, verb: str, delay: int | None) -> None:
    lease = _leased(q)
    ways: dict[str, Any] = {
        "ack": Ack(lease, result=1), "nack": Nack(lease, error="x", delay=delay),
        "reject": Reject(lease, error="x"), "release": Release(lease),
    }  # fmt: skip
    settlement = ways[verb]
    (first,) = q.settle([settlement])
    with house.unchanged(q):
        assert q.settle([settlement, settlement]) == [first, first]


def test_repeating_a_successful_ack_answers_the_same_after_a_restart(house: House) -> None:
    q = house.open()
    lease = _leased(q)
    q.ack(lease)
    q = house.reopen()
    with house.unchanged(q):
        q.ack(lease)


def test_repeating_the_nack_that_used_up_the_attempts_answers_dead_again(q: Queue, house: House) -> None:
    lease = _leased(q, max_attempts=1)
    assert q.nack(lease, error="x").state is State.DEAD
    with house.unchanged(q):
        assert q.nack(lease, error="x").state is State.DEAD


def test_repeating_the_nack_that_ended_a_cancelled_message_answers_cancelled_again(q: Queue, house: House) -> None:
    for settle in (q.nack, q.release):
        lease = _leased(q)
        q.cancel(lease.id)
        assert settle(lease).state is State.CANCELLED
        with house.unchanged(q):
            assert settle(lease).state is State.CANCELLED


VERBS = ("ack", "nack", "nack now", "reject", "release")


@pytest.mark.parametrize("first", VERBS)
@pytest.mark.parametrize("second", VERBS)
def test_a_settled_lease_can_not_be_settled_in_another_way(q: Queue, house: House, first: str, second: str) -> None:
    if first.split(maxsplit=1)[0] == second.split(maxsplit=1)[0]:
        return
    lease = _leased(q)
    _settle(q, first, lease)
    with house.unchanged(q):
        with pytest.raises(LeaseLost):
            _settle(q, second, lease)
        with pytest.raises(LeaseLost):
            q.extend(lease, 60)


@pytest.mark.parametrize("first", ["nack", "release"])
@pytest.mark.parametrize("second", VERBS)
def test_a_cancelled_lease_can_not_be_settled_in_another_way(q: Queue, house: House, first: str, second: str) -> None:
    if first == second.split(maxsplit=1)[0]:
        return
    lease = _leased(q)
    q.cancel(lease.id)
    _settle(q, first, lease)
    with house.unchanged(q), pytest.raises(LeaseLost):
        _settle(q, second, lease)


def test_the_last_nack_can_not_be_repeated_as_a_reject(q: Queue, house: House) -> None:
    lease = _leased(q, max_attempts=1)
    q.nack(lease)
    with house.unchanged(q), pytest.raises(LeaseLost):
        q.reject(lease)


def _settle(q: Queue, how: str, lease: Lease) -> None:
    {
        "ack": lambda: q.ack(lease),
        "nack": lambda: q.nack(lease),
        "nack now": lambda: q.nack(lease, delay=0),
        "reject": lambda: q.reject(lease),
        "release": lambda: q.release(lease),
    }[how]()


def test_settle_answers_per_item_and_says_which_took_effect(q: Queue) -> None:
    q.publish_many("emails", range(6))
    a, b, c, d, e, gone = q.claim("emails", limit=6)
    q.ack(gone)
    outcomes = q.settle(
        [Ack(a), Nack(b, error="x"), Nack(gone), Reject(c, reason="bad"), Release(d), Ack(gone), Nack(e, delay=0)]
    )
    assert [o.state for o in outcomes] == [
        State.DONE, State.DELAYED, None, State.DEAD, State.READY, State.DONE, State.READY,
    ]  # fmt: skip
    assert [o.id for o in outcomes] == [a.id, b.id, None, c.id, d.id, gone.id, e.id]
    assert isinstance(outcomes[2].error, LeaseLost)
    assert [o.ok for o in outcomes] == [True, True, False, True, True, True, True]
    assert counts(q, "emails") == {"done": 2, "delayed": 1, "dead": 1, "ready": 2}


def test_the_first_of_two_settlements_of_one_lease_in_a_batch_counts(q: Queue) -> None:
    lease = _leased(q)
    first, second = q.settle([Ack(lease), Nack(lease)])
    assert (first.state, second.ok) == (State.DONE, False)
    assert q.get(lease.id).state is State.DONE


def test_settle_of_nothing_does_nothing(q: Queue, house: House) -> None:
    q.publish("emails", 1)
    with house.unchanged(q):
        assert q.settle([]) == []


def test_each_settle_is_one_transition_in_the_journal(q: Queue) -> None:
    lease = _leased(q)
    q.ack(lease)
    q.ack(lease)
    assert verbs(q, lease.id) == ["publish", "claim", "ack"]


def test_a_message_that_was_removed_has_no_lease(q: Queue) -> None:
    lease = _leased(q)
    q.ack(lease)
    q.purge("emails", state="done")
    with pytest.raises(LeaseLost):
        q.ack(lease)
    with pytest.raises(tampu.NotFound):
        q.get(lease.id)


def test_a_message_given_back_for_later_waits_and_its_attempt_does_not_count(q: Queue, house: House) -> None:
    lease = _leased(q)
    assert q.release(lease, delay=60).state is State.DELAYED
    with house.unchanged(q):
        assert q.release(lease, delay=60).state is State.DELAYED
        with pytest.raises(LeaseLost):
            q.nack(lease)
    assert q.get(lease.id).attempts == 0
    assert q.claim("emails") == []
    house.clock.advance(60)
    assert [again.attempt for again in q.claim("emails")] == [1]
    assert verbs(q, lease.id)[:3] == ["publish", "claim", "release"]


def test_a_cancelled_message_given_back_for_later_ends(q: Queue) -> None:
    lease = _leased(q)
    q.cancel(lease.id)
    assert q.release(lease, delay=60).state is State.CANCELLED
