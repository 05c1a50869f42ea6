"""key: one waiting message per key, replaced in place. idempotency_key: the first message for its window."""

import pytest

from tampu import IdempotencyConflict, NewMessage, QueueFull, State
from tampu.broker.store import Store
from tests.conformance.harness import Harness, counts, payloads, verbs


def test_key_replaces_the_payload_of_the_waiting_message_in_place(store: Store) -> None:
    first = store.publish("emails", "old", key="a")
    store.publish("emails", "other")
    second = store.publish("emails", "new", key="a", type="t", labels={"l": "1"})
    assert second.id == first.id
    assert (first.duplicate, second.duplicate) == (False, True)
    seen = store.get(first.id)
    assert (seen.payload, seen.type, seen.labels) == ("new", "t", {"l": "1"})
    assert payloads(store.claim("emails", limit=5)) == ["new", "other"]


@pytest.mark.parametrize("fields", [{"delay": 60}, {"hold": "x"}])
def test_key_replaces_also_what_is_delayed_or_held(store: Store, fields: dict[str, object]) -> None:
    first = store.publish("emails", "old", key="a", **fields)  # type: ignore[arg-type]  # a bag of fields
    second = store.publish("emails", "new", key="a")
    assert (second.id, second.state) == (first.id, first.state)
    assert store.get(first.id).payload == "new"


def test_replacing_is_one_transition_and_counts_nothing_twice(store: Store) -> None:
    message = store.publish("emails", 1, key="a")
    store.publish("emails", 2, key="a")
    assert verbs(store, message.id) == ["publish", "replace"]
    assert counts(store, "emails") == {"ready": 1}


def test_a_leased_message_is_not_replaced(store: Store) -> None:
    store.publish("emails", "first", key="a")
    lease = store.claim("emails")[0]
    second = store.publish("emails", "second", key="a")
    assert second.id != lease.id
    assert not second.duplicate
    store.ack(lease)
    assert payloads(store.claim("emails", limit=5)) == ["second"]


@pytest.mark.parametrize("way", ["nack", "nack now", "release", "run out"])
def test_nack_of_a_message_whose_key_was_published_again(store: Store, harness: Harness, way: str) -> None:
    """Both go on: the newer one keeps the key, the older one waits without it."""
    old = store.publish("emails", "old", key="a")
    lease = store.claim("emails", lease=30)[0]
    new = store.publish("emails", "new", key="a")
    if way == "nack":
        store.nack(lease, delay=10)
    elif way == "nack now":
        store.nack(lease, delay=0)
    elif way == "release":
        store.release(lease)
    harness.clock.advance(30)
    newer = store.publish("emails", "newer", key="a")
    assert newer.id == new.id
    got = {lease.id: lease.payload for lease in store.claim("emails", limit=5)}
    assert got == {old.id: "old", new.id: "newer"}


@pytest.mark.parametrize("way", ["reject", "last nack", "run out"])
def test_dead_letter_move_and_replay_of_a_message_whose_key_was_published_again(
    store: Store, harness: Harness, way: str
) -> None:
    old = store.publish("emails", "old", key="a", max_attempts=1)
    lease = store.claim("emails", lease=30)[0]
    new = store.publish("emails", "new", key="a")
    if way == "reject":
        store.reject(lease)
    elif way == "last nack":
        store.nack(lease)
    harness.clock.advance(30)
    harness.sweep()
    assert store.get(old.id).state is State.DEAD
    assert len(store.replay("emails", ids=[old.id])) == 1
    assert store.publish("emails", "newest", key="a").id == new.id
    assert sorted(payloads(store.claim("emails", limit=5))) == ["newest", "old"]


def test_a_message_that_comes_back_takes_its_free_key_again(store: Store) -> None:
    message = store.publish("emails", "old", key="a")
    store.nack(store.claim("emails")[0], delay=0)
    assert store.publish("emails", "new", key="a").id == message.id


@pytest.mark.parametrize("how", ["ack", "cancel", "expire", "reject", "purge"])
def test_a_message_that_ended_gives_its_key_up(store: Store, harness: Harness, how: str) -> None:
    message = store.publish("emails", "old", key="a", ttl=60)
    if how in ("ack", "reject"):
        getattr(store, how)(store.claim("emails")[0])
    elif how == "cancel":
        store.cancel(message.id)
    elif how == "purge":
        store.purge("emails", state="ready")
    else:
        harness.clock.advance(60)
        harness.sweep()
    again = store.publish("emails", "new", key="a")
    assert again.id != message.id
    assert not again.duplicate


def test_the_same_key_in_another_queue_is_another_message(store: Store) -> None:
    assert store.publish("emails", 1, key="a").id != store.publish("letters", 2, key="a").id


def test_two_of_one_batch_with_one_key_are_one_message(store: Store) -> None:
    one, two = store.publish_many("emails", [NewMessage("x", key="a"), NewMessage("y", key="a")])
    assert one.id == two.id
    assert payloads(store.claim("emails", limit=5)) == ["y"]


def test_replacing_needs_no_room_in_a_full_queue(store: Store) -> None:
    store.queues.put("emails", max_depth=1)
    first = store.publish("emails", 1, key="a")
    assert store.publish("emails", 2, key="a").id == first.id
    with pytest.raises(QueueFull):
        store.publish("emails", 3, key="b")


def test_idempotency_key_answers_with_the_first_message(store: Store, harness: Harness) -> None:
    first = store.publish("emails", {"n": 1}, idempotency_key="i")
    with harness.unchanged(store):
        again = store.publish("emails", {"n": 1}, idempotency_key="i")
    assert (again.id, again.duplicate, first.duplicate) == (first.id, True, False)


def test_idempotency_key_answers_also_when_the_first_is_leased_or_done(store: Store) -> None:
    first = store.publish("emails", 1, idempotency_key="i")
    lease = store.claim("emails")[0]
    assert store.publish("emails", 1, idempotency_key="i").id == first.id
    store.ack(lease)
    again = store.publish("emails", 1, idempotency_key="i")
    assert (again.id, again.state) == (first.id, State.DONE)
    assert store.claim("emails") == []


def test_idempotency_key_answers_also_when_the_first_was_removed(store: Store) -> None:
    first = store.publish("emails", 1, idempotency_key="i")
    store.ack(store.claim("emails")[0])
    store.purge("emails", state="done")
    assert store.publish("emails", 1, idempotency_key="i").id == first.id
    assert store.claim("emails") == []


@pytest.mark.parametrize(("payload", "fields"), [(2, {}), (1, {"type": "t"}), (1, {"labels": {"a": "b"}})])
def test_idempotency_key_with_another_body_is_a_conflict(
    store: Store, harness: Harness, payload: int, fields: dict[str, object]
) -> None:
    store.publish("emails", 1, idempotency_key="i")
    with harness.unchanged(store), pytest.raises(IdempotencyConflict) as refused:
        store.publish("emails", payload, idempotency_key="i", **fields)  # type: ignore[arg-type]  # a bag of fields
    assert (refused.value.code, refused.value.field) == ("idempotency_conflict", "idempotency_key")


def test_the_same_idempotency_key_in_another_queue_is_another_message(store: Store) -> None:
    first, other = (store.publish(queue, 1, idempotency_key="i") for queue in ("emails", "letters"))
    assert (first.duplicate, other.duplicate) == (False, False)
    assert [store.publish(queue, 1, idempotency_key="i").id for queue in ("emails", "letters")] == [first.id, other.id]
    assert (counts(store, "emails"), counts(store, "letters")) == ({"ready": 1}, {"ready": 1})


def test_keys_with_slashes_belong_to_their_queue(store: Store) -> None:
    messages = [store.publish("a", 1, idempotency_key=key) for key in ("a/i", "/i", "i", "b/a/i")]
    messages += [store.publish("b", 1, idempotency_key=key) for key in ("i", "a/i")]
    assert len({message.id for message in messages}) == 6


def test_an_idempotency_key_does_not_outlive_its_window_in_another_queue(store: Store, harness: Harness) -> None:
    store.queues.put("emails", idempotency_window=60)
    store.publish("emails", 1, idempotency_key="i")
    other = store.publish("letters", 1, idempotency_key="i")
    harness.clock.advance(60)
    assert not store.publish("emails", 2, idempotency_key="i").duplicate
    assert store.publish("letters", 1, idempotency_key="i").id == other.id


def test_idempotency_key_is_free_again_when_its_window_ends(store: Store, harness: Harness) -> None:
    store.queues.put("emails", idempotency_window=60)
    first = store.publish("emails", 1, idempotency_key="i")
    harness.clock.advance(59.999)
    assert store.publish("emails", 1, idempotency_key="i").id == first.id
    harness.clock.advance(0.001)
    second = store.publish("emails", 2, idempotency_key="i")
    assert second.id != first.id
    assert store.publish("emails", 2, idempotency_key="i").id == second.id


def test_trimming_keeps_idempotency_keys_within_their_window(store: Store, harness: Harness) -> None:
    store.queues.put("emails", idempotency_window=3600, retention=1)
    first = store.publish("emails", 1, idempotency_key="i")
    store.ack(store.claim("emails")[0])
    harness.clock.advance(3599)
    harness.trim()
    assert store.publish("emails", 1, idempotency_key="i").id == first.id
    harness.clock.advance(1)
    harness.trim()
    assert store.publish("emails", 1, idempotency_key="i").id != first.id


def test_idempotency_survives_opening_again(harness: Harness) -> None:
    first = harness.open().publish("emails", 1, idempotency_key="i")
    assert harness.reopen().publish("emails", 1, idempotency_key="i").id == first.id


def test_two_of_one_batch_with_one_idempotency_key_are_one_message(store: Store) -> None:
    one, two = store.publish_many("emails", [NewMessage(1, idempotency_key="i"), NewMessage(1, idempotency_key="i")])
    assert one.id == two.id
    assert counts(store, "emails") == {"ready": 1}
