"""What the machine draws from: queues with their rules, messages, times; and how each is said to the library."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import strategies as st

import tampu
from tests.model.entries import SECOND, New, Rules

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
START = 1_750_000_000 * SECOND
TENANTS = ("north", "south")
QUEUES = {
    "fifo": Rules(),
    "urgent": Rules(ordering="priority"),
    "aged": Rules(ordering="priority", ageing=5 * SECOND),
    "due": Rules(ordering="deadline", max_attempts=2, on_deadline="dead"),
    "turns": Rules(ordering="fair"),
    "grouped": Rules(group_order=True, on_deadline="dead"),
    "pairs": Rules(group_concurrency=2),
    "paced": Rules(group_every=2 * SECOND, group_burst=2),
    "steps": Rules(group_every=3 * SECOND, group_burst=1, group_order=True),
    "narrow": Rules(max_in_flight=2, retention=15 * SECOND, on_deadline="expire"),
    "small": Rules(max_depth=4, ttl=30 * SECOND),
}
HERE = {("north", name): rules for name, rules in QUEUES.items()} | {
    ("south", name): QUEUES[name] for name in ("fifo", "grouped", "small")
}
OWN_IDS = [str(uuid.UUID(int=n)) for n in (1, 2)]
VERBS = ("ack", "nack", "reject", "release")

places = st.sampled_from(sorted(HERE))
seconds = st.sampled_from([0.001, 0.5, 1, 1, 2, 2, 3, 5, 8, 10, 11, 35, 70]).map(lambda s: round(s * SECOND))
some = st.integers(0, 30)
now_and_then = st.integers(0, 3).map(lambda n: n == 3)
rarely = st.integers(0, 9).map(lambda n: n == 9)


def mostly_none(*values: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from([*[None] * 2 * len(values), *values])


def times(*values: float) -> st.SearchStrategy[Any]:
    return mostly_none(*(round(v * SECOND) for v in values))


new_messages = st.builds(
    New,
    payload=st.integers(0, 2),
    priority=st.integers(-2, 2),
    delay=times(0, 1, 3, 20),
    ttl=times(1, 4, 15, 60),
    deadline=times(1, 5, 30),
    key=st.sampled_from([None, "a", "b"]),
    idempotency_key=mostly_none("x", "y"),
    max_attempts=mostly_none(1, 2),
    group=st.sampled_from(["g", "g", "h", None]),
    hold=st.sampled_from([None] * 8 + ["wait"]),
    id=st.sampled_from([None] * 10 + OWN_IDS),
)
plain_messages = st.builds(New, payload=st.integers(0, 2), priority=st.integers(-2, 2), delay=times(1))


def changes(rules: Rules) -> dict[str, Any]:
    """What differs from the defaults, as `queues.put` takes it."""
    standard = Rules()
    wanted: dict[str, Any] = {}
    for name in (
        "ordering",
        "group_order",
        "group_concurrency",
        "group_burst",
        "max_in_flight",
        "max_depth",
        "max_attempts",
        "on_deadline",
    ):
        if getattr(rules, name) != getattr(standard, name):
            wanted[name] = getattr(rules, name)
    if rules.group_every:
        wanted["group_rate"] = SECOND / rules.group_every
    for name in ("ageing", "ttl", "retention"):
        if getattr(rules, name) != getattr(standard, name):
            wanted[name] = getattr(rules, name) / SECOND
    return wanted


def written(new: New) -> tampu.NewMessage:
    return tampu.NewMessage(
        new.payload,
        priority=new.priority,
        delay=None if new.delay is None else timedelta(microseconds=new.delay),
        ttl=None if new.ttl is None else timedelta(microseconds=new.ttl),
        deadline=None if new.deadline is None else EPOCH + timedelta(microseconds=new.deadline),
        key=new.key,
        idempotency_key=new.idempotency_key,
        max_attempts=new.max_attempts,
        group=new.group,
        hold=new.hold,
        id=new.id,
    )


def settlement(verb: str, _id: str, receipt: str, extra: int | None) -> Any:
    """``extra`` is the delay of a nack (in microseconds) or the result of an ack."""
    if verb == "ack":
        return tampu.Ack(receipt, result=extra)
    if verb == "nack":
        return tampu.Nack(receipt, error="boom", delay=None if extra is None else extra / SECOND)
    return tampu.Reject(receipt, reason="bad") if verb == "reject" else tampu.Release(receipt)


def said(outcome: tampu.Outcome) -> str:
    """The state of an outcome, or the code of its error."""
    return str(outcome.state) if outcome.error is None else outcome.error.code
