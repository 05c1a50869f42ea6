"""pause, drain, close, resume: what a queue still does in each state."""

import pytest

from tampu import NotFound, QueueClosed, State
from tampu.broker.queue import Queue
from tests.conformance.house import House, counts, payloads


def test_a_paused_queue_takes_messages_and_delivers_none(q: Queue) -> None:
    q.publish("emails", 1)
    q.pause("emails")
    q.publish("emails", 2)
    assert q.claim("emails", limit=5) == []
    assert q.stats("emails").status == "paused"
    q.resume("emails")
    assert payloads(q.claim("emails", limit=5)) == [1, 2]
    assert q.stats("emails").status == "open"


def test_a_draining_queue_delivers_and_takes_none(q: Queue, house: House) -> None:
    q.publish("emails", 1)
    q.drain("emails")
    for publish in (lambda: q.publish("emails", 2), lambda: q.publish_many("emails", [2])):
        with house.unchanged(q), pytest.raises(QueueClosed) as refused:
            publish()
        assert refused.value.code == "queue_closed"
    assert payloads(q.claim("emails", limit=5)) == [1]


def test_a_closed_queue_does_neither(q: Queue, house: House) -> None:
    q.publish("emails", 1)
    q.close_queue("emails")
    with house.unchanged(q), pytest.raises(QueueClosed):
        q.publish("emails", 2)
    assert q.claim("emails") == []
    q.resume("emails")
    assert payloads(q.claim("emails")) == [1]


@pytest.mark.parametrize("stop", ["pause", "drain", "close_queue"])
def test_work_in_hand_can_be_settled_in_every_state(q: Queue, stop: str) -> None:
    q.publish_many("emails", range(4))
    a, b, c, d = q.claim("emails", limit=4)
    getattr(q, stop)("emails")
    q.extend(a, 60)
    q.ack(a)
    q.nack(b, delay=0)
    q.reject(c)
    q.release(d)
    assert counts(q, "emails") == {"done": 1, "ready": 2, "dead": 1}


def test_the_state_of_one_queue_is_not_that_of_another(q: Queue) -> None:
    q.publish("emails", 1)
    q.publish("letters", 2)
    q.pause("emails")
    assert payloads(q.claim(["emails", "letters"], limit=5)) == [2]


@pytest.mark.parametrize("verb", ["pause", "resume", "drain", "close_queue"])
def test_a_queue_that_does_not_exist_has_no_state(q: Queue, verb: str) -> None:
    with pytest.raises(NotFound):
        getattr(q, verb)("nowhere")
    assert q.queues.list() == []


def test_the_state_survives_opening_again(house: House) -> None:
    q = house.open()
    q.publish("emails", 1)
    q.pause("emails")
    q = house.reopen()
    assert q.claim("emails") == []
    assert q.queues.get("emails").status == "paused"


def test_time_goes_on_in_a_paused_queue(q: Queue, house: House) -> None:
    due = q.publish("emails", 1, delay=5)
    expired = q.publish("emails", 2, ttl=5)
    q.pause("emails")
    house.clock.advance(5)
    house.sweep()
    assert [q.get(m.id).state for m in (due, expired)] == [State.READY, State.EXPIRED]


def test_purge_removes_only_the_states_named(q: Queue) -> None:
    q.publish("emails", "dead")
    q.reject(q.claim("emails")[0])
    q.publish("emails", "done")
    q.ack(q.claim("emails")[0])
    q.publish("emails", "leased")
    q.claim("emails")
    q.publish_many("emails", range(3))
    q.publish("emails", "delayed", delay=60)
    q.publish("emails", "held", hold="x")
    assert q.purge("emails", state=["ready", "done"], dry_run=True) == 4
    assert q.purge("emails", state=["ready", "done"]) == 4
    assert counts(q, "emails") == {"dead": 1, "leased": 1, "delayed": 1, "held": 1}
    assert q.purge("emails", state=State.DELAYED) == 1
    assert q.purge("emails", state="held") == 1
    assert q.purge("emails", state="dead") == 1
    assert q.purge("emails", state="dead") == 0
    assert [m.payload for m in q.messages("emails")] == ["leased"]


def test_purge_goes_through_more_than_one_step(q: Queue) -> None:
    q.publish_many("emails", range(1203))
    assert q.purge("emails", state="ready") == 1203
    assert counts(q, "emails") == {}
    assert q.claim("emails") == []
