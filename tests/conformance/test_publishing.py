"""publish: where a message goes, and every field coming back as it was given."""

from datetime import UTC, datetime, timedelta, timezone
from uuid import UUID, uuid4

import pytest

import tampu
from tampu import NewMessage, State
from tampu.broker.queue import Queue
from tests.conformance.house import House, counts


def _everything(house: House) -> dict[str, object]:
    return {
        "type": "email.send",
        "priority": -7,
        "ttl": 3600,
        "deadline": house.clock.time + timedelta(hours=2),
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


def test_publish_without_a_time_is_ready(q: Queue) -> None:
    message = q.publish("emails", {"to": "ada"})
    assert message.state is State.READY
    assert q.get(message.id).state is State.READY
    assert counts(q, "emails") == {"ready": 1}


def test_publish_with_a_time_to_come_is_delayed(q: Queue, house: House) -> None:
    message = q.publish("emails", 1, delay=60)
    assert message.state is State.DELAYED
    assert message.run_at == house.clock.time + timedelta(seconds=60)
    assert q.get(message.id).run_at == message.run_at


def test_publish_with_a_time_that_has_passed_is_ready(q: Queue, house: House) -> None:
    past = house.clock.time - timedelta(days=1)
    assert q.publish("emails", 1, run_at=past).state is State.READY
    assert q.publish("emails", 1, delay=0).state is State.READY


def test_publish_with_a_hold_is_held(q: Queue) -> None:
    message = q.publish("emails", 1, hold="waits for a person")
    assert (message.state, message.reason) == (State.HELD, "waits for a person")
    assert q.claim("emails") == []


@pytest.mark.parametrize("where", ["answer", "get", "list", "claim", "reopened"])
def test_every_field_of_a_message_survives(house: House, where: str) -> None:
    q = house.open()
    fields = _everything(house)
    message = q.publish("emails", {"to": ["ada"], "n": 1.5}, **fields)  # type: ignore[arg-type]  # a bag of fields
    seen = {
        "answer": lambda: message,
        "get": lambda: q.get(message.id),
        "list": lambda: q.messages("emails").messages[0],
        "claim": lambda: q.claim("emails")[0].message,
        "reopened": lambda: house.reopen().get(message.id),
    }[where]()
    assert seen.id == message.id
    assert UUID(seen.id).version == 7
    assert (seen.tenant, seen.queue) == ("default", "emails")
    assert seen.payload == {"to": ["ada"], "n": 1.5}
    assert seen.raw == b'{"to":["ada"],"n":1.5}'
    assert seen.content_type == "application/json"
    for name, value in fields.items():
        if name != "ttl":
            assert getattr(seen, name) == value, name
    assert seen.created_at == house.clock.time
    assert seen.expires_at == house.clock.time + timedelta(seconds=3600)
    assert seen.attempts == (1 if where == "claim" else 0)
    assert seen.last_error is None
    assert seen.result is None


def test_fields_that_were_not_given_have_plain_defaults(q: Queue) -> None:
    seen = q.get(q.publish("emails", None).id)
    assert (seen.type, seen.priority, seen.max_attempts, seen.attempts) == ("message", 0, 5, 0)
    assert (seen.headers, seen.labels) == ({}, {})
    for name in ("deadline", "run_at", "expires_at", "ended_at", "key", "idempotency_key", "group", "source"):
        assert getattr(seen, name) is None, name
    assert (seen.correlation_id, seen.causation_id, seen.parent_id) == (None, None, None)


@pytest.mark.parametrize(
    "payload",
    [
        None,
        True,
        0,
        -(2**63),
        2**63,
        10**40,
        1.5,
        "",
        "größe \U0001f600 \x00",
        [],
        {},
        [1, [2, {"a": None}]],
        {"k": "v" * 1000},
    ],
)
def test_json_payloads_come_back_equal(q: Queue, payload: object) -> None:
    q.publish("emails", payload)
    lease = q.claim("emails")[0]
    assert lease.payload == payload
    assert type(lease.payload) is type(payload)


@pytest.mark.parametrize("payload", [b"", b"\x00\xff" * 100, bytearray(b"abc"), memoryview(b"abc")])
def test_bytes_payloads_come_back_as_bytes(q: Queue, payload: bytes) -> None:
    q.publish("emails", payload)
    lease = q.claim("emails")[0]
    assert lease.payload == bytes(payload)
    assert lease.message.content_type == "application/octet-stream"


def test_payload_is_decoded_by_its_content_type(q: Queue) -> None:
    text = q.publish("emails", "grüße", content_type="text/plain")
    own = q.publish("emails", b"<a/>", content_type="application/xml")
    ready_json = q.publish("emails", b'{"a":1}', content_type="application/json")
    assert q.get(text.id).raw == "grüße".encode()
    assert q.get(text.id).payload == "grüße"
    assert q.get(own.id).payload == b"<a/>"
    assert q.get(ready_json.id).payload == {"a": 1}


def test_run_at_keeps_its_zone(q: Queue, house: House) -> None:
    """Noon in a zone east of UTC is that instant, not noon UTC."""
    kathmandu = timezone(timedelta(hours=5, minutes=45))
    noon = datetime(2026, 3, 1, 12, tzinfo=kathmandu)
    message = q.publish("emails", 1, run_at=noon)
    assert message.run_at == noon == datetime(2026, 3, 1, 6, 15, tzinfo=UTC)
    house.clock.advance((noon - house.clock.time).total_seconds() - 1)
    assert q.claim("emails") == []
    house.clock.advance(1)
    assert [lease.id for lease in q.claim("emails")] == [message.id]


def test_all_times_are_timezone_aware(q: Queue, house: House) -> None:
    message = q.publish("emails", 1, delay=5, ttl=60, deadline=house.clock.time)
    for at in (message.created_at, message.run_at, message.expires_at, message.deadline):
        assert at is not None
        assert at.utcoffset() is not None
    house.clock.advance(5)
    lease = q.claim("emails")[0]
    assert lease.until.utcoffset() is not None
    q.nack(lease, error="x", delay=0)
    assert q.get(message.id).failures[0].at.utcoffset() is not None


def test_durations_may_be_seconds_or_timedelta(q: Queue, house: House) -> None:
    times = [q.publish("emails", 1, delay=d).run_at for d in (90, 90.0, timedelta(minutes=1, seconds=30))]
    assert times == [house.clock.time + timedelta(seconds=90)] * 3


def test_ids_grow_in_publish_order(q: Queue, house: House) -> None:
    ids = []
    for _ in range(5):
        ids += [m.id for m in q.publish_many("emails", range(3))]
        house.clock.advance(0.0004)
    assert ids == sorted(ids)
    assert len(set(ids)) == 15


def test_ids_grow_also_when_the_clock_goes_back(q: Queue, house: House) -> None:
    first = q.publish("emails", 1)
    house.clock.advance(-3600)
    second = q.publish("emails", 2)
    assert second.id > first.id
    assert [lease.id for lease in q.claim("emails", limit=2)] == [first.id, second.id]


def test_own_id_is_kept_and_publishing_it_again_answers_the_first(q: Queue) -> None:
    own = str(uuid4())
    first = q.publish("emails", "first", id=own)
    again = q.publish("emails", "second", id=own.upper())
    assert first.id == again.id == own
    assert (first.duplicate, again.duplicate) == (False, True)
    assert q.get(own).payload == "first"
    assert counts(q, "emails") == {"ready": 1}
    assert q.claim("emails", limit=5)[0].id == own


def test_publish_many_takes_messages_and_plain_values(q: Queue) -> None:
    made = q.publish_many("emails", [{"a": 1}, NewMessage("x", type="t", priority=3), b"raw", [1, 2]])
    assert [m.payload for m in made] == [{"a": 1}, "x", b"raw", [1, 2]]
    assert [m.type for m in made] == ["message", "t", "message", "message"]
    assert [lease.id for lease in q.claim("emails", limit=10)] == [m.id for m in made]


def test_publish_many_of_nothing_does_nothing(q: Queue, house: House) -> None:
    q.publish("emails", 1)
    with house.unchanged(q):
        assert q.publish_many("emails", []) == []


def test_what_publish_acknowledged_is_there_after_opening_again(house: House) -> None:
    q = house.open()
    made = q.publish_many("emails", range(20))
    later = q.publish("emails", "later", delay=60)
    q = house.reopen()
    assert [lease.id for lease in q.claim("emails", limit=50)] == [m.id for m in made]
    assert q.get(later.id).state is State.DELAYED


def test_payload_limit_is_256_kib_unless_the_queue_says_otherwise(q: Queue) -> None:
    q.publish("emails", b"x" * 256 * 1024)
    with pytest.raises(tampu.PayloadTooLarge):
        q.publish("emails", b"x" * (256 * 1024 + 1))
    q.queues.put("emails", max_payload=10)
    with pytest.raises(tampu.PayloadTooLarge) as refused:
        q.publish("emails", "123456789")
    assert (refused.value.code, refused.value.field) == ("payload_too_large", "payload")
    q.publish("emails", "12345678")
