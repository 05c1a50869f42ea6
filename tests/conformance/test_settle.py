"""settle: ack, nack, reject and release; each takes effect once, however often it is repeated."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import tampu
from tampu import Ack, LeaseLost, Nack, Reject, Release, State
from tampu.broker.store import Store
from tampu.model.message import Lease
from tests.conformance.harness import Harness, counts, payloads, verbs


def _leased(store: Store, payload: object = 1, **fields: object) -> Lease:
    store.publish("emails", payload, **fields)  # type: ignore[arg-type]  # a bag of fields
    return store.claim("emails", worker="w1")[0]


def test_ack_ends_the_message_as_done(store: Store, harness: Harness) -> None:
    lease = _leased(store)
    store.ack(lease)
    seen = store.get(lease.id)
    assert (seen.state, seen.attempts, seen.ended_at) == (State.DONE, 1, harness.clock.time)
    assert counts(store, "emails") == {"done": 1}
    assert store.claim("emails") == []


def test_nack_waits_for_the_backoff_of_the_queue(store: Store, harness: Harness) -> None:
    store.queues.put("emails", backoff=[10, 20])
    lease = _leased(store)
    assert store.nack(lease, error="boom").state is State.DELAYED
    seen = store.get(lease.id)
    assert (seen.state, seen.attempts, seen.last_error) == (State.DELAYED, 1, "boom")
    assert seen.run_at == harness.clock.time + timedelta(seconds=10)
    harness.clock.advance(10)
    again = store.claim("emails")[0]
    store.nack(again)
    assert store.get(lease.id).run_at == harness.clock.time + timedelta(seconds=20)


def test_nack_with_a_delay_waits_that_long(store: Store, harness: Harness) -> None:
    lease = _leased(store)
    store.nack(lease, delay=timedelta(hours=48))
    assert store.get(lease.id).run_at == harness.clock.time + timedelta(hours=48)
    harness.clock.advance(48 * 3600 - 1)
    assert store.claim("emails") == []
    harness.clock.advance(1)
    assert store.claim("emails")[0].attempt == 2


def test_nack_with_no_delay_goes_to_the_back_of_the_queue(store: Store) -> None:
    first = _leased(store, "first")
    store.publish("emails", "second")
    assert store.nack(first, delay=0).state is State.READY
    assert payloads(store.claim("emails", limit=2)) == ["second", "first"]


def test_reject_is_dead_now_for_the_reason_given(store: Store) -> None:
    lease = _leased(store)
    assert store.reject(lease, reason="schema_invalid", error="no field 'to'").state is State.DEAD
    seen = store.get(lease.id)
    assert (seen.state, seen.reason, seen.last_error, seen.attempts) == (
        State.DEAD, "schema_invalid", "no field 'to'", 1,
    )  # fmt: skip
    assert store.get(store.messages("emails", state="dead").messages[0].id).reason == "schema_invalid"


def test_reject_without_a_reason_says_unrecoverable(store: Store) -> None:
    lease = _leased(store)
    store.reject(lease)
    assert store.get(lease.id).reason == "unrecoverable"


def test_release_does_not_count_the_attempt(store: Store) -> None:
    lease = _leased(store)
    assert store.release(lease).state is State.READY
    assert store.get(lease.id).attempts == 0
    assert store.get(lease.id).failures == ()
    assert store.claim("emails")[0].attempt == 1


def test_settling_works_with_the_receipt_alone(store: Store) -> None:
    for settle in (store.ack, store.nack, store.reject, store.release):
        lease = _leased(store)
        settle(lease.receipt)
        assert store.get(lease.id).state is not State.LEASED
        store.purge("emails", state=[s for s in State if s is not State.LEASED])


def test_repeating_a_successful_settle_answers_the_same(store: Store, harness: Harness) -> None:
    ways: list[Callable[[Lease], Any]] = [
        lambda lease: Ack(lease, result=1), lambda lease: Reject(lease, error="x"),
        lambda lease: Nack(lease, error="x", delay=None), lambda lease: Nack(lease, error="x", delay=0), Release,
    ]  # fmt: skip
    for way in ways:
        settlement = way(_leased(store))
        (first,) = store.settle([settlement])
        with harness.unchanged(store):
            assert store.settle([settlement, settlement]) == [first, first]
        store.purge("emails", state="ready")


def test_repeating_a_successful_ack_answers_the_same_after_a_restart(harness: Harness) -> None:
    store = harness.open()
    lease = _leased(store)
    store.ack(lease)
    store = harness.reopen()
    with harness.unchanged(store):
        store.ack(lease)


def test_repeating_the_nack_that_used_up_the_attempts_answers_dead_again(store: Store, harness: Harness) -> None:
    lease = _leased(store, max_attempts=1)
    assert store.nack(lease, error="x").state is State.DEAD
    with harness.unchanged(store):
        assert store.nack(lease, error="x").state is State.DEAD


def test_repeating_the_nack_that_ended_a_cancelled_message_answers_cancelled_again(
    store: Store, harness: Harness
) -> None:
    for settle in (store.nack, store.release):
        lease = _leased(store)
        store.cancel(lease.id)
        assert settle(lease).state is State.CANCELLED
        with harness.unchanged(store):
            assert settle(lease).state is State.CANCELLED


VERBS = ("ack", "nack", "nack now", "reject", "release")


@pytest.mark.parametrize("first", VERBS)
def test_a_settled_lease_cannot_be_settled_in_another_way(store: Store, harness: Harness, first: str) -> None:
    others = [verb for verb in VERBS if verb.split(maxsplit=1)[0] != first.split(maxsplit=1)[0]]
    lease = _leased(store)
    _settle(store, first, lease)
    with harness.unchanged(store):
        for second in others:
            with pytest.raises(LeaseLost):
                _settle(store, second, lease)
        with pytest.raises(LeaseLost):
            store.extend(lease, 60)


def test_a_cancelled_lease_cannot_be_settled_in_another_way(store: Store, harness: Harness) -> None:
    for first, others in (("nack", ("ack", "reject", "release")), ("release", ("ack", "nack", "nack now", "reject"))):
        lease = _leased(store)
        store.cancel(lease.id)
        _settle(store, first, lease)
        with harness.unchanged(store):
            for second in others:
                with pytest.raises(LeaseLost):
                    _settle(store, second, lease)


def test_the_last_nack_cannot_be_repeated_as_a_reject(store: Store, harness: Harness) -> None:
    lease = _leased(store, max_attempts=1)
    store.nack(lease)
    with harness.unchanged(store), pytest.raises(LeaseLost):
        store.reject(lease)


def _settle(store: Store, how: str, lease: Lease) -> None:
    {
        "ack": lambda: store.ack(lease),
        "nack": lambda: store.nack(lease),
        "nack now": lambda: store.nack(lease, delay=0),
        "reject": lambda: store.reject(lease),
        "release": lambda: store.release(lease),
    }[how]()


def test_settle_answers_per_item_and_says_which_took_effect(store: Store) -> None:
    store.publish_many("emails", range(6))
    a, b, c, d, e, gone = store.claim("emails", limit=6)
    store.ack(gone)
    outcomes = store.settle(
        [Ack(a), Nack(b, error="x"), Nack(gone), Reject(c, reason="bad"), Release(d), Ack(gone), Nack(e, delay=0)]
    )
    assert [o.state for o in outcomes] == [
        State.DONE, State.DELAYED, None, State.DEAD, State.READY, State.DONE, State.READY,
    ]  # fmt: skip
    assert [o.id for o in outcomes] == [a.id, b.id, None, c.id, d.id, gone.id, e.id]
    assert isinstance(outcomes[2].error, LeaseLost)
    assert [o.ok for o in outcomes] == [True, True, False, True, True, True, True]
    assert counts(store, "emails") == {"done": 2, "delayed": 1, "dead": 1, "ready": 2}


def test_the_first_of_two_settlements_of_one_lease_in_a_batch_counts(store: Store) -> None:
    lease = _leased(store)
    first, second = store.settle([Ack(lease), Nack(lease)])
    assert (first.state, second.ok) == (State.DONE, False)
    assert store.get(lease.id).state is State.DONE


def test_settle_of_nothing_does_nothing(store: Store, harness: Harness) -> None:
    store.publish("emails", 1)
    with harness.unchanged(store):
        assert store.settle([]) == []


def test_each_settle_is_one_transition_in_the_journal(store: Store) -> None:
    lease = _leased(store)
    store.ack(lease)
    store.ack(lease)
    assert verbs(store, lease.id) == ["publish", "claim", "ack"]


def test_a_message_that_was_removed_has_no_lease(store: Store) -> None:
    lease = _leased(store)
    store.ack(lease)
    store.purge("emails", state="done")
    with pytest.raises(LeaseLost):
        store.ack(lease)
    with pytest.raises(tampu.NotFound):
        store.get(lease.id)


def test_a_message_released_with_a_delay_waits_and_its_attempt_does_not_count(store: Store, harness: Harness) -> None:
    lease = _leased(store)
    assert store.release(lease, delay=60).state is State.DELAYED
    with harness.unchanged(store):
        assert store.release(lease, delay=60).state is State.DELAYED
        with pytest.raises(LeaseLost):
            store.nack(lease)
    assert store.get(lease.id).attempts == 0
    assert store.claim("emails") == []
    harness.clock.advance(60)
    assert [again.attempt for again in store.claim("emails")] == [1]
    assert verbs(store, lease.id)[:3] == ["publish", "claim", "release"]


def test_a_cancelled_message_released_with_a_delay_ends(store: Store) -> None:
    lease = _leased(store)
    store.cancel(lease.id)
    assert store.release(lease, delay=60).state is State.CANCELLED
