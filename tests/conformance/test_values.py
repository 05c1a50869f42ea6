"""Values: what arrives equals what was sent, or it is refused; tuples, enums and dataclasses arrive in plain form."""

import dataclasses
import enum
import uuid
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any

import msgspec
import pytest

from tampu import InvalidMessage, NewMessage
from tampu.broker.store import Store

JSON, MSGPACK = "application/json", "application/msgpack"


class Colour(enum.Enum):
    RED = "red"


class Size(enum.IntEnum):
    SMALL = 1


@dataclasses.dataclass
class Order:
    number: int
    note: Any = None


class Line(msgspec.Struct, rename="camel"):
    unit_price: Any


AT = datetime(2026, 3, 1, 12, 30, 15, 123456, tzinfo=timezone(timedelta(hours=2)))
IN_JSON: list[Any] = [
    None, True, 0, -1.5, "größe", [], {}, {"a": [1, {"b": None}]}, 2**70, {"Infinity": "NaN"}, Size.SMALL,
]  # fmt: skip
IN_MSGPACK: list[Any] = [
    {"b": b"abc"}, [b""], {"a": [{"b": bytearray(b"x")}]}, {1: 2}, {1: "a", "1": "b"}, {2.5: 1}, {None: 1}, {True: 0},
    {b"k": 1}, {(1, "a"): 2}, {"at": AT}, AT, {AT: 1}, {"id": 2**64 - 1, "raw": b"\xff"},
]  # fmt: skip
CONVERTED: list[tuple[Any, Any]] = [
    ((1, (2, 3)), [1, [2, 3]]),
    ({"c": Colour.RED}, {"c": "red"}),
    (Order(7), {"number": 7, "note": None}),
    ([Line("1.50")], [{"unitPrice": "1.50"}]),
    ({"o": Order(7, b"x")}, {"o": {"number": 7, "note": b"x"}}),
    (Line({1: 2}), {"unitPrice": {1: 2}}),
]
REFUSED: list[tuple[Any, str]] = [
    (Decimal("1.50"), "str"),
    (datetime(2026, 3, 1), "time zone"),  # noqa: DTZ001 - that is the point
    (date(2026, 3, 1), "isoformat"),
    (time(12), "isoformat"),
    (timedelta(seconds=5), "total_seconds"),
    (uuid.UUID(int=1), "str"),
    ({1, 2}, "list"),
    (frozenset({1}), "list"),
]


def _arrived(store: Store) -> Any:
    (lease,) = store.claim("emails")
    return lease.payload


def test_values_that_json_keeps_are_published_as_json(store: Store) -> None:
    for value in IN_JSON:
        assert store.publish("emails", value).content_type == JSON
        assert _arrived(store) == value


def test_values_that_only_messagepack_keeps_arrive_unchanged(store: Store) -> None:
    for value in IN_MSGPACK:
        assert store.publish("emails", value).content_type == MSGPACK
        (lease,) = store.claim("emails")
        assert (lease.payload, lease.message.content_type) == (value, MSGPACK)
        store.ack(lease, result=value)
        assert store.get(lease.id).result == value


def test_tuples_enums_and_dataclasses_arrive_in_their_plain_form(store: Store) -> None:
    for value, plain in CONVERTED:
        store.publish("emails", value)
        (lease,) = store.claim("emails")
        assert lease.payload == plain
        store.ack(lease, result=value)
        assert store.get(lease.id).result == plain


def test_each_message_of_a_batch_has_the_format_that_keeps_it(store: Store) -> None:
    given = [{"a": 1}, {"b": b"x"}, b"raw", NewMessage({1: 2}, priority=0), NewMessage({"c": AT}, type="t"), "text"]
    stored = store.publish_many("emails", given)
    assert [m.content_type for m in stored] == [JSON, MSGPACK, "application/octet-stream", MSGPACK, MSGPACK, JSON]
    found = [lease.payload for lease in store.claim("emails", limit=10)]
    assert found == [{"a": 1}, {"b": b"x"}, b"raw", {1: 2}, {"c": AT}, "text"]


def test_values_that_neither_format_keeps_are_refused_with_a_remedy(store: Store) -> None:
    for value, remedy in REFUSED:
        for payload in (value, {"a": [1, {"b": value}]}, Order(1, value), (value,)):
            for publish in (store.publish, lambda queue, p: store.publish_many(queue, [{"a": 1}, p])):
                with pytest.raises(InvalidMessage) as refused:
                    publish("emails", payload)
                assert refused.value.field == "payload"
                assert remedy in (refused.value.hint or "")
    assert store.claim("emails") == []


def test_a_key_that_neither_format_keeps_is_refused(store: Store) -> None:
    with pytest.raises(InvalidMessage, match="key"):
        store.publish("emails", {"a": {uuid.UUID(int=1): 2}})


def test_a_result_that_neither_format_keeps_is_refused_and_the_lease_stays(store: Store) -> None:
    store.publish("emails", 1)
    (lease,) = store.claim("emails")
    for value, remedy in REFUSED:
        for result in (value, {"a": value}):
            with pytest.raises(InvalidMessage) as refused:
                store.ack(lease, result=result)
            assert refused.value.field == "result"
            assert remedy in (refused.value.hint or "")
    store.ack(lease, result="fine")
    assert store.get(lease.id).result == "fine"


def test_a_caller_that_asks_for_json_gets_what_json_makes_of_it(store: Store) -> None:
    stored = store.publish("emails", {"price": Decimal("1.50"), "on": date(2026, 3, 1), "b": b"abc"}, content_type=JSON)
    assert stored.content_type == JSON
    assert _arrived(store) == {"price": "1.50", "on": "2026-03-01", "b": "YWJj"}


def test_a_caller_that_asks_for_messagepack_gets_it(store: Store) -> None:
    assert store.publish("emails", {"a": 1}, content_type=MSGPACK).content_type == MSGPACK
    assert _arrived(store) == {"a": 1}
    with pytest.raises(InvalidMessage, match="Decimal"):
        store.publish("emails", Decimal(1), content_type=MSGPACK)


def test_a_schedule_keeps_its_payload(store: Store) -> None:
    store.schedules.put("nightly", queue="emails", payload={"b": b"abc", 1: AT}, every=60)
    assert store.schedules.get("nightly").payload == {"b": b"abc", 1: AT}
    with pytest.raises(InvalidMessage, match="Decimal"):
        store.schedules.put("hourly", queue="emails", payload=Decimal(1), every=60)
