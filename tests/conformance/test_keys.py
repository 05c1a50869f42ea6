"""key: one waiting message per key, replaced in place. idempotency_key: the first message for its window."""

import pytest

from tampu import IdempotencyConflict, NewMessage, QueueFull, State
from tampu.broker.queue import Queue
from tests.conformance.house import House, counts, payloads, verbs


def test_key_replaces_the_payload_of_the_waiting_message_in_place(q: Queue) -> None:
    first = q.publish("emails", "old", key="a")
    q.publish("emails", "other")
    second = q.publish("emails", "new", key="a", type="t", labels={"l": "1"})
    assert second.id == first.id
    assert (first.duplicate, second.duplicate) == (False, True)
    seen = q.get(first.id)
    assert (seen.payload, seen.type, seen.labels) == ("new", "t", {"l": "1"})
    assert payloads(q.claim("emails", limit=5)) == ["new", "other"]


@pytest.mark.parametrize("fields", [{"delay": 60}, {"hold": "x"}])
def test_key_replaces_also_what_is_delayed_or_held(q: Queue, fields: dict[str, object]) -> None:
    first = q.publish("emails", "old", key="a", **fields)  # type: ignore[arg-type]  # a bag of fields
    second = q.publish("emails", "new", key="a")
    assert (second.id, second.state) == (first.id, first.state)
    assert q.get(first.id).payload == "new"


def test_replacing_is_one_transition_and_counts_nothing_twice(q: Queue) -> None:
    message = q.publish("emails", 1, key="a")
    q.publish("emails", 2, key="a")
    assert verbs(q, message.id) == ["publish", "replace"]
    assert counts(q, "emails") == {"ready": 1}


def test_a_leased_message_is_not_replaced(q: Queue) -> None:
    q.publish("emails", "first", key="a")
    lease = q.claim("emails")[0]
    second = q.publish("emails", "second", key="a")
    assert second.id != lease.id
    assert not second.duplicate
    q.ack(lease)
    assert payloads(q.claim("emails", limit=5)) == ["second"]


@pytest.mark.parametrize("way", ["nack", "nack now", "release", "run out"])
def test_nack_of_a_message_whose_key_was_published_again(q: Queue, house: House, way: str) -> None:
    """Both go on: the newer one keeps the key, the older one waits without it."""
    old = q.publish("emails", "old", key="a")
    lease = q.claim("emails", lease=30)[0]
    new = q.publish("emails", "new", key="a")
    if way == "nack":
        q.nack(lease, delay=10)
    elif way == "nack now":
        q.nack(lease, delay=0)
    elif way == "release":
        q.release(lease)
    house.clock.advance(30)
    newer = q.publish("emails", "newer", key="a")
    assert newer.id == new.id
    got = {lease.id: lease.payload for lease in q.claim("emails", limit=5)}
    assert got == {old.id: "old", new.id: "newer"}


@pytest.mark.parametrize("way", ["reject", "last nack", "run out"])
def test_dead_letter_move_and_replay_of_a_message_whose_key_was_published_again(
    q: Queue, house: House, way: str
) -> None:
    old = q.publish("emails", "old", key="a", max_attempts=1)
    lease = q.claim("emails", lease=30)[0]
    new = q.publish("emails", "new", key="a")
    if way == "reject":
        q.reject(lease)
    elif way == "last nack":
        q.nack(lease)
    house.clock.advance(30)
    house.sweep()
    assert q.get(old.id).state is State.DEAD
    assert len(q.replay("emails", ids=[old.id])) == 1
    assert q.publish("emails", "newest", key="a").id == new.id
    assert sorted(payloads(q.claim("emails", limit=5))) == ["newest", "old"]


def test_a_message_that_comes_back_takes_its_free_key_again(q: Queue) -> None:
    message = q.publish("emails", "old", key="a")
    q.nack(q.claim("emails")[0], delay=0)
    assert q.publish("emails", "new", key="a").id == message.id


@pytest.mark.parametrize("how", ["ack", "cancel", "expire", "reject", "purge"])
def test_a_message_that_ended_gives_its_key_up(q: Queue, house: House, how: str) -> None:
    message = q.publish("emails", "old", key="a", ttl=60)
    if how in ("ack", "reject"):
        getattr(q, how)(q.claim("emails")[0])
    elif how == "cancel":
        q.cancel(message.id)
    elif how == "purge":
        q.purge("emails", state="ready")
    else:
        house.clock.advance(60)
        house.sweep()
    again = q.publish("emails", "new", key="a")
    assert again.id != message.id
    assert not again.duplicate


def test_the_same_key_in_another_queue_is_another_message(q: Queue) -> None:
    assert q.publish("emails", 1, key="a").id != q.publish("letters", 2, key="a").id


def test_two_of_one_batch_with_one_key_are_one_message(q: Queue) -> None:
    one, two = q.publish_many("emails", [NewMessage("x", key="a"), NewMessage("y", key="a")])
    assert one.id == two.id
    assert payloads(q.claim("emails", limit=5)) == ["y"]


def test_replacing_needs_no_room_in_a_full_queue(q: Queue) -> None:
    q.queues.put("emails", max_depth=1)
    first = q.publish("emails", 1, key="a")
    assert q.publish("emails", 2, key="a").id == first.id
    with pytest.raises(QueueFull):
        q.publish("emails", 3, key="b")


def test_idempotency_key_answers_with_the_first_message(q: Queue, house: House) -> None:
    first = q.publish("emails", {"n": 1}, idempotency_key="i")
    with house.unchanged(q):
        again = q.publish("emails", {"n": 1}, idempotency_key="i")
    assert (again.id, again.duplicate, first.duplicate) == (first.id, True, False)


def test_idempotency_key_answers_also_when_the_first_is_leased_or_done(q: Queue) -> None:
    first = q.publish("emails", 1, idempotency_key="i")
    lease = q.claim("emails")[0]
    assert q.publish("emails", 1, idempotency_key="i").id == first.id
    q.ack(lease)
    again = q.publish("emails", 1, idempotency_key="i")
    assert (again.id, again.state) == (first.id, State.DONE)
    assert q.claim("emails") == []


def test_idempotency_key_answers_also_when_the_first_was_removed(q: Queue) -> None:
    first = q.publish("emails", 1, idempotency_key="i")
    q.ack(q.claim("emails")[0])
    q.purge("emails", state="done")
    assert q.publish("emails", 1, idempotency_key="i").id == first.id
    assert q.claim("emails") == []


@pytest.mark.parametrize(
    ("queue", "payload", "fields"),
    [("emails", 2, {}), ("letters", 1, {}), ("emails", 1, {"type": "t"}), ("emails", 1, {"labels": {"a": "b"}})],
)
def test_idempotency_key_with_another_body_is_a_conflict(
    q: Queue, house: House, queue: str, payload: int, fields: dict[str, object]
) -> None:
    q.publish("emails", 1, idempotency_key="i")
    q.publish("letters", 0)
    with house.unchanged(q), pytest.raises(IdempotencyConflict) as refused:
        q.publish(queue, payload, idempotency_key="i", **fields)  # type: ignore[arg-type]  # a bag of fields
    assert (refused.value.code, refused.value.field) == ("idempotency_conflict", "idempotency_key")


def test_idempotency_key_is_free_again_when_its_window_ends(q: Queue, house: House) -> None:
    q.queues.put("emails", idempotency_window=60)
    first = q.publish("emails", 1, idempotency_key="i")
    house.clock.advance(59.999)
    assert q.publish("emails", 1, idempotency_key="i").id == first.id
    house.clock.advance(0.001)
    second = q.publish("emails", 2, idempotency_key="i")
    assert second.id != first.id
    assert q.publish("emails", 2, idempotency_key="i").id == second.id


def test_trimming_keeps_idempotency_keys_within_their_window(q: Queue, house: House) -> None:
    q.queues.put("emails", idempotency_window=3600, retention=1)
    first = q.publish("emails", 1, idempotency_key="i")
    q.ack(q.claim("emails")[0])
    house.clock.advance(3599)
    house.trim()
    assert q.publish("emails", 1, idempotency_key="i").id == first.id
    house.clock.advance(1)
    house.trim()
    assert q.publish("emails", 1, idempotency_key="i").id != first.id


def test_idempotency_survives_opening_again(house: House) -> None:
    first = house.open().publish("emails", 1, idempotency_key="i")
    assert house.reopen().publish("emails", 1, idempotency_key="i").id == first.id


def test_two_of_one_batch_with_one_idempotency_key_are_one_message(q: Queue) -> None:
    one, two = q.publish_many("emails", [NewMessage(1, idempotency_key="i"), NewMessage(1, idempotency_key="i")])
    assert one.id == two.id
    assert counts(q, "emails") == {"ready": 1}
