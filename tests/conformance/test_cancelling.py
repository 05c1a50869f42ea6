"""cancel: ends what waits, asks the worker of what is leased."""

import pytest

from tampu import InvalidState, LeaseLost, NotFound, State
from tampu.broker.queue import Queue
from tests.conformance.house import House, counts, payloads, verbs


@pytest.mark.parametrize("fields", [{}, {"delay": 60}, {"hold": "x"}], ids=["ready", "delayed", "held"])
def test_cancel_ends_what_waits(q: Queue, house: House, fields: dict[str, object]) -> None:
    message = q.publish("emails", 1, **fields)  # type: ignore[arg-type]  # a bag of fields
    (outcome,) = q.cancel(message.id)
    assert (outcome.id, outcome.state, outcome.ok) == (message.id, State.CANCELLED, True)
    seen = q.get(message.id)
    assert (seen.state, seen.ended_at) == (State.CANCELLED, house.clock.time)
    house.clock.advance(60)
    assert q.claim("emails") == []
    assert counts(q, "emails") == {"cancelled": 1}
    assert verbs(q, message.id) == ["publish", "cancel"]


def test_cancel_of_a_leased_message_asks_the_worker(q: Queue) -> None:
    message = q.publish("emails", 1)
    lease = q.claim("emails")[0]
    assert q.cancel(message.id)[0].state is State.LEASED
    assert q.get(message.id).cancel_requested
    longer = q.extend(lease, 30)
    assert longer is not None
    assert longer.message.cancel_requested
    assert counts(q, "emails") == {"leased": 1}


def test_a_worker_that_was_not_asked_is_told_nothing(q: Queue) -> None:
    q.publish("emails", 1)
    longer = q.extend(q.claim("emails")[0], 30)
    assert longer is not None
    assert not longer.message.cancel_requested


@pytest.mark.parametrize("way", ["nack", "release", "run out"])
def test_a_message_asked_to_stop_is_cancelled_when_its_worker_lets_go(q: Queue, house: House, way: str) -> None:
    message = q.publish("emails", 1)
    lease = q.claim("emails", lease=30)[0]
    q.cancel(message.id)
    if way == "run out":
        house.clock.advance(30)
        house.sweep()
    else:
        assert getattr(q, way)(lease).state is State.CANCELLED
    assert q.get(message.id).state is State.CANCELLED
    assert counts(q, "emails") == {"cancelled": 1}
    assert q.claim("emails") == []
    assert verbs(q, message.id)[-2:] == ["ask_cancel", "cancel"]
    if way == "run out":
        with pytest.raises(LeaseLost):
            q.ack(lease)


def test_a_worker_that_finishes_all_the_same_is_done(q: Queue) -> None:
    message = q.publish("emails", 1)
    lease = q.claim("emails")[0]
    q.cancel(message.id)
    q.ack(lease, result="finished")
    assert (q.get(message.id).state, q.get(message.id).result) == (State.DONE, "finished")


def test_reject_after_a_cancel_is_dead(q: Queue) -> None:
    message = q.publish("emails", 1)
    lease = q.claim("emails")[0]
    q.cancel(message.id)
    assert q.reject(lease).state is State.DEAD
    assert q.get(message.id).state is State.DEAD


def test_cancelling_twice_answers_the_same(q: Queue, house: House) -> None:
    message = q.publish("emails", 1)
    q.cancel(message.id)
    with house.unchanged(q):
        assert q.cancel(message.id)[0].state is State.CANCELLED


def test_cancel_of_what_has_ended_changes_nothing(q: Queue, house: House) -> None:
    done = q.publish("emails", 1)
    q.ack(q.claim("emails")[0])
    dead = q.publish("emails", 2)
    q.reject(q.claim("emails")[0])
    expired = q.publish("emails", 3, ttl=1)
    house.clock.advance(1)
    house.sweep()
    with house.unchanged(q):
        outcomes = q.cancel(done.id, dead.id, expired.id)
    assert all(isinstance(o.error, InvalidState) for o in outcomes)


def test_cancel_of_several_answers_for_each(q: Queue) -> None:
    a, b, c = q.publish_many("emails", ["a", "b", "c"])
    unknown = "019b76da-a800-7000-8000-000000000001"
    outcomes = q.cancel(a.id, unknown, c.id)
    assert [o.ok for o in outcomes] == [True, False, True]
    assert isinstance(outcomes[1].error, NotFound)
    assert payloads(q.claim("emails", limit=5)) == ["b"]
    assert q.get(b.id).state is State.LEASED


def test_cancel_of_nothing_does_nothing(q: Queue, house: House) -> None:
    q.publish("emails", 1)
    with house.unchanged(q):
        assert q.cancel() == []
