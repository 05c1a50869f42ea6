"""pause, drain, close, resume: what a queue still does in each state."""

import pytest

from tampu import NotFound, QueueClosed, State
from tampu.broker.store import Store
from tests.conformance.harness import Harness, counts, payloads


def test_a_paused_queue_takes_messages_and_delivers_none(store: Store) -> None:
    store.publish("emails", 1)
    store.pause("emails")
    store.publish("emails", 2)
    assert store.claim("emails", limit=5) == []
    assert store.stats("emails").status == "paused"
    store.resume("emails")
    assert payloads(store.claim("emails", limit=5)) == [1, 2]
    assert store.stats("emails").status == "open"


def test_a_draining_queue_delivers_and_takes_none(store: Store, harness: Harness) -> None:
    store.publish("emails", 1)
    store.drain("emails")
    for publish in (lambda: store.publish("emails", 2), lambda: store.publish_many("emails", [2])):
        with harness.unchanged(store), pytest.raises(QueueClosed) as refused:
            publish()
        assert refused.value.code == "queue_closed"
    assert payloads(store.claim("emails", limit=5)) == [1]


def test_a_closed_queue_does_neither(store: Store, harness: Harness) -> None:
    store.publish("emails", 1)
    store.close_queue("emails")
    with harness.unchanged(store), pytest.raises(QueueClosed):
        store.publish("emails", 2)
    assert store.claim("emails") == []
    store.resume("emails")
    assert payloads(store.claim("emails")) == [1]


@pytest.mark.parametrize("stop", ["pause", "drain", "close_queue"])
def test_leases_can_be_settled_in_every_state(store: Store, stop: str) -> None:
    store.publish_many("emails", range(4))
    a, b, c, d = store.claim("emails", limit=4)
    getattr(store, stop)("emails")
    store.extend(a, 60)
    store.ack(a)
    store.nack(b, delay=0)
    store.reject(c)
    store.release(d)
    assert counts(store, "emails") == {"done": 1, "ready": 2, "dead": 1}


def test_the_state_of_one_queue_is_not_that_of_another(store: Store) -> None:
    store.publish("emails", 1)
    store.publish("letters", 2)
    store.pause("emails")
    assert payloads(store.claim(["emails", "letters"], limit=5)) == [2]


def test_a_queue_that_does_not_exist_has_no_state(store: Store) -> None:
    for verb in (store.pause, store.resume, store.drain, store.close_queue):
        with pytest.raises(NotFound):
            verb("nowhere")
        assert store.queues.list() == []


def test_the_state_survives_opening_again(harness: Harness) -> None:
    store = harness.open()
    store.publish("emails", 1)
    store.pause("emails")
    store = harness.reopen()
    assert store.claim("emails") == []
    assert store.queues.get("emails").status == "paused"


def test_time_goes_on_in_a_paused_queue(store: Store, harness: Harness) -> None:
    due = store.publish("emails", 1, delay=5)
    expired = store.publish("emails", 2, ttl=5)
    store.pause("emails")
    harness.clock.advance(5)
    harness.sweep()
    assert [store.get(m.id).state for m in (due, expired)] == [State.READY, State.EXPIRED]


def test_purge_removes_only_the_states_named(store: Store) -> None:
    store.publish("emails", "dead")
    store.reject(store.claim("emails")[0])
    store.publish("emails", "done")
    store.ack(store.claim("emails")[0])
    store.publish("emails", "leased")
    store.claim("emails")
    store.publish_many("emails", range(3))
    store.publish("emails", "delayed", delay=60)
    store.publish("emails", "held", hold="x")
    assert store.purge("emails", state=["ready", "done"], dry_run=True) == 4
    assert store.purge("emails", state=["ready", "done"]) == 4
    assert counts(store, "emails") == {"dead": 1, "leased": 1, "delayed": 1, "held": 1}
    assert store.purge("emails", state=State.DELAYED) == 1
    assert store.purge("emails", state="held") == 1
    assert store.purge("emails", state="dead") == 1
    assert store.purge("emails", state="dead") == 0
    assert [m.payload for m in store.messages("emails")] == ["leased"]


def test_purge_goes_through_more_than_one_step(store: Store) -> None:
    store.publish_many("emails", range(1203))
    assert store.purge("emails", state="ready") == 1203
    assert counts(store, "emails") == {}
    assert store.claim("emails") == []
