"""cancel: ends waiting messages, and asks the worker of a leased one to stop."""

import pytest

from tampu import InvalidState, LeaseLost, NotFound, State
from tampu.broker.store import Store
from tests.conformance.harness import Harness, counts, payloads, verbs


@pytest.mark.parametrize("fields", [{}, {"delay": 60}, {"hold": "x"}], ids=["ready", "delayed", "held"])
def test_cancel_ends_a_waiting_message(store: Store, harness: Harness, fields: dict[str, object]) -> None:
    message = store.publish("emails", 1, **fields)  # type: ignore[arg-type]  # a bag of fields
    (outcome,) = store.cancel(message.id)
    assert (outcome.id, outcome.state, outcome.ok) == (message.id, State.CANCELLED, True)
    seen = store.get(message.id)
    assert (seen.state, seen.ended_at) == (State.CANCELLED, harness.clock.time)
    harness.clock.advance(60)
    assert store.claim("emails") == []
    assert counts(store, "emails") == {"cancelled": 1}
    assert verbs(store, message.id) == ["publish", "cancel"]


def test_cancel_of_a_leased_message_asks_the_worker(store: Store) -> None:
    message = store.publish("emails", 1)
    lease = store.claim("emails")[0]
    assert store.cancel(message.id)[0].state is State.LEASED
    assert store.get(message.id).cancel_requested
    longer = store.extend(lease, 30)
    assert longer is not None
    assert longer.message.cancel_requested
    assert counts(store, "emails") == {"leased": 1}


def test_a_worker_whose_message_is_not_cancelled_is_not_asked_to_stop(store: Store) -> None:
    store.publish("emails", 1)
    longer = store.extend(store.claim("emails")[0], 30)
    assert longer is not None
    assert not longer.message.cancel_requested


@pytest.mark.parametrize("way", ["nack", "release", "run out"])
def test_a_cancelled_leased_message_ends_when_its_worker_gives_it_back(
    store: Store, harness: Harness, way: str
) -> None:
    message = store.publish("emails", 1)
    lease = store.claim("emails", lease=30)[0]
    store.cancel(message.id)
    if way == "run out":
        harness.clock.advance(30)
        harness.sweep()
    else:
        assert getattr(store, way)(lease).state is State.CANCELLED
    assert store.get(message.id).state is State.CANCELLED
    assert counts(store, "emails") == {"cancelled": 1}
    assert store.claim("emails") == []
    assert verbs(store, message.id)[-2:] == ["ask_cancel", "cancel"]
    if way == "run out":
        with pytest.raises(LeaseLost):
            store.ack(lease)


def test_a_cancelled_leased_message_that_is_acked_is_done(store: Store) -> None:
    message = store.publish("emails", 1)
    lease = store.claim("emails")[0]
    store.cancel(message.id)
    store.ack(lease, result="finished")
    assert (store.get(message.id).state, store.get(message.id).result) == (State.DONE, "finished")


def test_reject_after_a_cancel_is_dead(store: Store) -> None:
    message = store.publish("emails", 1)
    lease = store.claim("emails")[0]
    store.cancel(message.id)
    assert store.reject(lease).state is State.DEAD
    assert store.get(message.id).state is State.DEAD


def test_cancelling_twice_answers_the_same(store: Store, harness: Harness) -> None:
    message = store.publish("emails", 1)
    store.cancel(message.id)
    with harness.unchanged(store):
        assert store.cancel(message.id)[0].state is State.CANCELLED


def test_cancel_of_an_ended_message_changes_nothing(store: Store, harness: Harness) -> None:
    done = store.publish("emails", 1)
    store.ack(store.claim("emails")[0])
    dead = store.publish("emails", 2)
    store.reject(store.claim("emails")[0])
    expired = store.publish("emails", 3, ttl=1)
    harness.clock.advance(1)
    harness.sweep()
    with harness.unchanged(store):
        outcomes = store.cancel(done.id, dead.id, expired.id)
    assert all(isinstance(o.error, InvalidState) for o in outcomes)


def test_cancel_of_several_answers_for_each(store: Store) -> None:
    a, b, c = store.publish_many("emails", ["a", "b", "c"])
    unknown = "019b76da-a800-7000-8000-000000000001"
    outcomes = store.cancel(a.id, unknown, c.id)
    assert [o.ok for o in outcomes] == [True, False, True]
    assert isinstance(outcomes[1].error, NotFound)
    assert payloads(store.claim("emails", limit=5)) == ["b"]
    assert store.get(b.id).state is State.LEASED


def test_cancel_of_nothing_does_nothing(store: Store, harness: Harness) -> None:
    store.publish("emails", 1)
    with harness.unchanged(store):
        assert store.cancel() == []
