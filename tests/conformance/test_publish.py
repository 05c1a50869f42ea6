"""publish: which state a message gets, and that every field comes back as it was given."""

from datetime import UTC, datetime, timedelta, timezone
from uuid import UUID, uuid4

import pytest

import tampu
from tampu import IdempotencyConflict, InvalidMessage, NewMessage, State
from tampu.broker.store import Store
from tests.conformance.harness import Harness, counts


def _everything(harness: Harness) -> dict[str, object]:
    return {
        "type": "email.send",
        "priority": -7,
        "ttl": 3600,
        "deadline": harness.clock.time + timedelta(hours=2),
        "key": "k-1",
        "idempotency_key": "i-1",
        "labels": {"team": "größe", "empty": ""},
        "headers": {"trace": "00-1"},
        "max_attempts": 9,
        "correlation_id": "c-1",
        "causation_id": "ca-1",
        "parent_id": "p-1",
        "group": "g-1",
        "source": "tests",
    }


def test_publish_without_a_time_is_ready(store: Store) -> None:
    message = store.publish("emails", {"to": "ada"})
    assert message.state is State.READY
    assert store.get(message.id).state is State.READY
    assert counts(store, "emails") == {"ready": 1}


def test_publish_with_a_future_time_is_delayed(store: Store, harness: Harness) -> None:
    message = store.publish("emails", 1, delay=60)
    assert message.state is State.DELAYED
    assert message.run_at == harness.clock.time + timedelta(seconds=60)
    assert store.get(message.id).run_at == message.run_at


def test_publish_with_a_time_that_has_passed_is_ready(store: Store, harness: Harness) -> None:
    past = harness.clock.time - timedelta(days=1)
    assert store.publish("emails", 1, run_at=past).state is State.READY
    assert store.publish("emails", 1, delay=0).state is State.READY


def test_publish_with_a_hold_is_held(store: Store) -> None:
    message = store.publish("emails", 1, hold="waits for a person")
    assert (message.state, message.reason) == (State.HELD, "waits for a person")
    assert store.claim("emails") == []


def test_every_field_of_a_message_survives(harness: Harness) -> None:
    store = harness.open()
    fields = _everything(harness)
    message = store.publish("emails", {"to": ["ada"], "n": 1.5}, **fields)  # type: ignore[arg-type]  # a bag of fields
    found = {"answer": message, "get": store.get(message.id), "list": store.messages("emails").messages[0]}
    store = harness.reopen()
    found |= {"reopened": store.get(message.id), "claim": store.claim("emails")[0].message}
    for where, seen in found.items():
        assert seen.id == message.id, where
        assert UUID(seen.id).version == 7, where
        assert (seen.tenant, seen.queue) == ("default", "emails"), where
        assert seen.payload == {"to": ["ada"], "n": 1.5}, where
        assert seen.raw == b'{"to":["ada"],"n":1.5}', where
        assert seen.content_type == "application/json", where
        for name, value in fields.items():
            if name != "ttl":
                assert getattr(seen, name) == value, (where, name)
        assert seen.created_at == harness.clock.time, where
        assert seen.expires_at == harness.clock.time + timedelta(seconds=3600), where
        assert seen.attempts == (1 if where == "claim" else 0), where
        assert seen.last_error is None, where
        assert seen.result is None, where


def test_fields_that_were_not_given_have_plain_defaults(store: Store) -> None:
    seen = store.get(store.publish("emails", None).id)
    assert (seen.type, seen.priority, seen.max_attempts, seen.attempts) == ("message", 0, 5, 0)
    assert (seen.headers, seen.labels) == ({}, {})
    for name in ("deadline", "run_at", "expires_at", "ended_at", "key", "idempotency_key", "group", "source"):
        assert getattr(seen, name) is None, name
    assert (seen.correlation_id, seen.causation_id, seen.parent_id) == (None, None, None)


def test_json_payloads_come_back_equal(store: Store) -> None:
    text = "größe \U0001f600 \x00"
    numbers = [None, True, 0, -(2**63), 2**63, 10**40, 1.5]
    for payload in (*numbers, "", text, [], {}, [1, [2, {"a": None}]], {"k": "v" * 1000}):
        store.publish("emails", payload)
        (lease,) = store.claim("emails")
        assert lease.payload == payload
        assert type(lease.payload) is type(payload)


def test_bytes_payloads_come_back_as_bytes(store: Store) -> None:
    for payload in (b"", b"\x00\xff" * 100, bytearray(b"abc"), memoryview(b"abc")):
        store.publish("emails", payload)
        (lease,) = store.claim("emails")
        assert lease.payload == bytes(payload)
        assert lease.message.content_type == "application/octet-stream"


def test_payload_is_decoded_by_its_content_type(store: Store) -> None:
    text = store.publish("emails", "grüße", content_type="text/plain")
    own = store.publish("emails", b"<a/>", content_type="application/xml")
    ready_json = store.publish("emails", b'{"a":1}', content_type="application/json")
    assert store.get(text.id).raw == "grüße".encode()
    assert store.get(text.id).payload == "grüße"
    assert store.get(own.id).payload == b"<a/>"
    assert store.get(ready_json.id).payload == {"a": 1}


def test_run_at_keeps_its_zone(store: Store, harness: Harness) -> None:
    """Noon in a zone east of UTC is that instant, not noon UTC."""
    kathmandu = timezone(timedelta(hours=5, minutes=45))
    noon = datetime(2026, 3, 1, 12, tzinfo=kathmandu)
    message = store.publish("emails", 1, run_at=noon)
    assert message.run_at == noon == datetime(2026, 3, 1, 6, 15, tzinfo=UTC)
    harness.clock.advance((noon - harness.clock.time).total_seconds() - 1)
    assert store.claim("emails") == []
    harness.clock.advance(1)
    assert [lease.id for lease in store.claim("emails")] == [message.id]


def test_all_times_are_timezone_aware(store: Store, harness: Harness) -> None:
    message = store.publish("emails", 1, delay=5, ttl=60, deadline=harness.clock.time)
    for at in (message.created_at, message.run_at, message.expires_at, message.deadline):
        assert at is not None
        assert at.utcoffset() is not None
    harness.clock.advance(5)
    lease = store.claim("emails")[0]
    assert lease.until.utcoffset() is not None
    store.nack(lease, error="x", delay=0)
    assert store.get(message.id).failures[0].at.utcoffset() is not None


def test_durations_may_be_seconds_or_timedelta(store: Store, harness: Harness) -> None:
    times = [store.publish("emails", 1, delay=d).run_at for d in (90, 90.0, timedelta(minutes=1, seconds=30))]
    assert times == [harness.clock.time + timedelta(seconds=90)] * 3


def test_ids_grow_in_publish_order(store: Store, harness: Harness) -> None:
    ids = []
    for _ in range(5):
        ids += [m.id for m in store.publish_many("emails", range(3))]
        harness.clock.advance(0.0004)
    assert ids == sorted(ids)
    assert len(set(ids)) == 15


def test_ids_grow_also_when_the_clock_goes_back(store: Store, harness: Harness) -> None:
    first = store.publish("emails", 1)
    harness.clock.advance(-3600)
    second = store.publish("emails", 2)
    assert second.id > first.id
    assert [lease.id for lease in store.claim("emails", limit=2)] == [first.id, second.id]


def test_the_id_of_a_message_of_another_queue_is_a_conflict(store: Store, harness: Harness) -> None:
    own = "0123abcd-0000-4000-8000-0000000000aa"
    store.publish("letters", "secret", id=own)
    store.publish("emails", 1)
    for batch in ([NewMessage(1, id=own)], [NewMessage(2), NewMessage(3, id=own), NewMessage(4, key="k")]):
        with harness.unchanged(store), pytest.raises(IdempotencyConflict) as refused:
            store.publish_many("emails", batch)
        assert (refused.value.field, "secret" in str(refused.value)) == ("id", False)


def test_an_id_in_the_form_of_the_store_is_refused_whether_in_use_or_not(store: Store, harness: Harness) -> None:
    """So nobody finds out which messages there are, or takes an id before the store does."""
    used, gone = (message.id for message in store.publish_many("letters", ["secret", "gone"]))
    store.publish("emails", 1)
    store.cancel(gone)
    store.purge("letters", state="cancelled")
    errors = set()
    for id in (used, gone):
        for queue in ("letters", "emails"):
            with harness.unchanged(store), pytest.raises(InvalidMessage) as refused:
                store.publish_many(queue, [NewMessage(1), NewMessage(2, id=id)])
            errors.add((refused.value.field, str(refused.value)))
    assert len(errors) == 1


def test_an_own_id_is_kept_and_publishing_it_again_returns_the_first(store: Store) -> None:
    own = str(uuid4())
    first = store.publish("emails", "first", id=own)
    again = store.publish("emails", "second", id=own.upper())
    assert first.id == again.id == own
    assert (first.duplicate, again.duplicate) == (False, True)
    assert store.get(own).payload == "first"
    assert counts(store, "emails") == {"ready": 1}
    assert store.claim("emails", limit=5)[0].id == own


def test_publish_many_takes_messages_and_plain_values(store: Store) -> None:
    made = store.publish_many("emails", [{"a": 1}, NewMessage("x", type="t", priority=3), b"raw", [1, 2]])
    assert [m.payload for m in made] == [{"a": 1}, "x", b"raw", [1, 2]]
    assert [m.type for m in made] == ["message", "t", "message", "message"]
    assert [lease.id for lease in store.claim("emails", limit=10)] == [m.id for m in made]


def test_publish_many_of_nothing_does_nothing(store: Store, harness: Harness) -> None:
    store.publish("emails", 1)
    with harness.unchanged(store):
        assert store.publish_many("emails", []) == []


def test_what_publish_acknowledged_is_there_after_opening_again(harness: Harness) -> None:
    store = harness.open()
    made = store.publish_many("emails", range(20))
    later = store.publish("emails", "later", delay=60)
    store = harness.reopen()
    assert [lease.id for lease in store.claim("emails", limit=50)] == [m.id for m in made]
    assert store.get(later.id).state is State.DELAYED


def test_payload_limit_is_256_kib_unless_the_queue_says_otherwise(store: Store) -> None:
    store.publish("emails", b"x" * 256 * 1024)
    with pytest.raises(tampu.PayloadTooLarge):
        store.publish("emails", b"x" * (256 * 1024 + 1))
    store.queues.put("emails", max_payload=10)
    with pytest.raises(tampu.PayloadTooLarge) as refused:
        store.publish("emails", "123456789")
    assert (refused.value.code, refused.value.field) == ("payload_too_large", "payload")
    store.publish("emails", "12345678")
