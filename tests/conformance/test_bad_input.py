"""Bad input: an error with a stable code, and nothing changed. Never another exception, never half a message."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

import tampu
from tampu import Ack, NewMessage
from tampu.broker.store import Store
from tests.conformance.harness import Harness, Refusals

NAN, INF = float("nan"), float("inf")
NAIVE = datetime(2026, 1, 1)  # noqa: DTZ001 - naive on purpose
BAD_NAMES = ["", "a/b", "a b", "x" * 129, "größe", "a\n", "-a", ".a", "*", None, 3, b"emails", ["emails", 1], "a\x00"]
HUGE = 1.7e308
BAD_DURATIONS = [
    -1,
    -0.5,
    -HUGE,
    HUGE,
    NAN,
    INF,
    "soon",
    "-5",
    "5 m",
    "",
    "9" * 400,
    "9" * 400 + "d",
    True,
    timedelta(seconds=-1),
    101 * 366 * 86_400,
    [],
    10**400,
]
DEEP: Any = []
for _ in range(100_000):
    DEEP = [DEEP]


@pytest.fixture
def filled(store: Store) -> Store:
    """Something in each place that a bad call could damage."""
    store.publish_many("emails", range(3))
    store.claim("emails")
    store.publish("emails", 1, delay=60)
    store.publish("emails", 1, hold="x")
    return store


FIELDS: list[tuple[str, list[Any]]] = [
    ("type", ["", "a b", 3, "x" * 201, "größe", b"t"]),
    ("priority", [NAN, INF, -INF, 1.5, 0.0, True, False, "5", None, 10**9 + 1, -(10**9) - 1, 10**30, [1]]),
    ("delay", BAD_DURATIONS),
    ("ttl", [*BAD_DURATIONS, 0]),
    ("run_at", [NAIVE, 3, "2026-01-01", date(2026, 1, 1), datetime(9000, 1, 1, tzinfo=UTC)]),
    ("deadline", [NAIVE, 3, "2026-01-01", date(2026, 1, 1)]),
    ("key", ["", 3, "x" * 513, b"k", "\ud800"]),
    ("idempotency_key", ["", 3, "x" * 513, b"k", "\ud800"]),
    ("labels", [3, [], "a", {"a": 1}, {1: "a"}, {"": "a"}, {"a": None}, {"a": "x" * 2049}, {"a": "\ud800"},
                {"\ud800": "a"}, {str(n): "" for n in range(65)}]),
    ("headers", [3, [("a", "b")], {"a": b"b"}, {"x" * 129: "a"}]),
    ("max_attempts", [0, -1, 1001, 1.0, True, "3", NAN]),
    ("correlation_id", ["", 3, "x" * 257, "\ud800"]),
    ("causation_id", ["", 3, "x" * 257]),
    ("parent_id", ["", 3, "x" * 257]),
    ("group", ["", 3, "x" * 257, "\ud800"]),
    ("source", ["", 3, "x" * 257]),
    ("hold", ["", 3, "x" * 129, True]),
    ("id", ["", "x", 3, "019b76da", "g" * 32, b"0" * 16]),
    ("content_type", ["", "json", 3, "a/b/c\n", "text/größe"]),
]  # fmt: skip


def test_a_bad_field_of_a_message_is_refused(filled: Store, refused: Refusals) -> None:
    for field, value in [(name, value) for name, values in FIELDS for value in values]:
        new = NewMessage(b"1", **{field: value})
        if value is not None:
            refused(
                filled,
                "invalid_message",
                lambda f=field, v=value: filled.publish("emails", b"1", **{f: v}),
                field,
            )
        refused(filled, "invalid_message", lambda n=new: filled.publish_many("emails", [1, n, 2]), field)


def test_delay_and_run_at_together_are_refused(filled: Store, harness: Harness, refused: Refusals) -> None:
    run_at = harness.clock.time
    refused(filled, "invalid_message", lambda: filled.publish("emails", 1, delay=5, run_at=run_at), "delay")


def test_a_payload_that_cannot_be_encoded_is_refused(filled: Store, refused: Refusals) -> None:
    payloads: list[Any] = [
        object(), {1, object()}, {(1, object()): 3}, "\ud800", {"\ud800": 1}, ["a", "\udfff"], DEEP,
        lambda: 1, {"a": {"b": object()}}, 1j, NAN, {"a": [1.5, -INF]},
    ]  # fmt: skip
    for payload in payloads:
        refused(filled, "invalid_message", lambda p=payload: filled.publish("emails", p), "payload")
        refused(filled, "invalid_message", lambda p=payload: filled.publish_many("emails", [1, p]), "payload")


def test_a_content_type_that_is_not_text_needs_bytes(filled: Store, refused: Refusals) -> None:
    for payload, kind in [({"a": 1}, "text/plain"), ("a", "application/xml"), ("\ud800", "text/plain")]:
        call = lambda p=payload, k=kind: filled.publish("emails", p, content_type=k)  # noqa: E731 - one line per case
        refused(filled, "invalid_message", call, "payload")


def test_a_payload_of_10_mb_is_refused(filled: Store, refused: Refusals) -> None:
    for payload in (b"x" * 10_000_000, "x" * 10_000_000, list(range(2_000_000))):
        refused(filled, "payload_too_large", lambda p=payload: filled.publish("emails", p), "payload")
    huge = [1, b"x" * 10_000_000]
    refused(filled, "payload_too_large", lambda: filled.publish_many("emails", huge), "payload")


def test_a_bad_queue_name_is_refused_by_every_verb(filled: Store, refused: Refusals) -> None:
    store = filled
    calls: list[Callable[[Any], Any]] = [
        lambda name: store.publish(name, 1),
        lambda name: store.publish_many(name, [1]),
        lambda name: store.publish_many(name, []),
        store.claim,
        lambda name: store.claim(["emails", name]),
        store.messages,
        lambda name: store.replay(name, where={}),
        lambda name: store.purge(name, state="dead"),
        store.pause,
        store.resume,
        store.drain,
        store.close_queue,
        lambda name: store.stats("" if name in (None, "*") else name),
    ]
    for name in BAD_NAMES:
        for call in calls:
            refused(store, "invalid_message", lambda n=name, c=call: c(n))


@pytest.mark.parametrize("name", BAD_NAMES, ids=repr)
def test_a_bad_tenant_name_is_refused(name: Any) -> None:
    with pytest.raises(tampu.InvalidMessage) as refused:
        tampu.open("memory://", tenant=name)
    assert refused.value.field == "tenant"


def test_a_queue_that_does_not_exist_is_not_found(filled: Store, refused: Refusals) -> None:
    store = filled
    for call in (
        lambda: store.stats("nowhere"),
        lambda: store.messages("nowhere"),
        lambda: store.purge("nowhere", state="dead"),
        lambda: store.replay("nowhere", where={}),
        lambda: store.pause("nowhere"),
    ):
        refused(store, "not_found", call, "queue")


def test_bad_batches_are_refused_whole(filled: Store, refused: Refusals) -> None:
    store = filled
    refused(store, "invalid_message", lambda: store.publish_many("emails", [0] * 10_001), "messages")
    for batch in ("abc", b"abc", {"a": 1}, None, 5, object()):
        refused(store, "invalid_message", lambda b=batch: store.publish_many("emails", b), "messages")
    for batch in (None, 5, [5], [None], ["emails/1.1"], [Ack("emails/1.1"), 3], "abc"):
        refused(store, "invalid_message", lambda b=batch: store.settle(b))


def test_ten_thousand_messages_are_one_batch(store: Store) -> None:
    assert len(store.publish_many("emails", [0] * 10_000)) == 10_000


def test_bad_options_of_claim_are_refused(filled: Store, refused: Refusals) -> None:
    bad: dict[str, list[Any]] = {
        "limit": [0, -1, 10_001, 1.0, True, "1", None],
        "worker": ["", 3, "x" * 257, "\ud800"],
        "wait": ["soon", -1, -HUGE, HUGE, NAN, INF, None],
        "lease": [0, *BAD_DURATIONS],
    }
    for name, value in [(name, value) for name, values in bad.items() for value in values]:
        refused(filled, "invalid_message", lambda n=name, v=value: filled.claim("emails", **{n: v}), name)


def test_bad_lists_of_queues_are_refused(filled: Store, refused: Refusals) -> None:
    for queues in ([], None, 5, ["emails"] * 1001, object()):
        refused(filled, "invalid_message", lambda n=queues: filled.claim(n))
