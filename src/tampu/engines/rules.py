"""What engines decide and answer alike, however they store it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

from tampu.engines.port import Load, Publish, QueueClaim, RetryLater, SettleItem
from tampu.model.errors import IdempotencyConflict, LeaseLost, QueueFull
from tampu.model.message import Body, Lease

SWEEP_FIRST = 1000
"""How much claim promotes, reaps and expires before it takes; more is for the keepers, or for the next call."""


# -- publish

KEPT_BY_KEY = ("priority", "deadline", "group", "hold", "own_max_attempts", "dead_at_deadline")
"""What stays of a body when a key replaces its payload."""


def full(call: Publish | Load) -> QueueFull:
    return QueueFull(
        f"queue {call.queue} is full: it may hold {call.max_depth} messages that have not ended",
        field="queue",
        hint="publish again when workers have caught up, or raise max_depth",
    )


def conflict() -> IdempotencyConflict:
    return IdempotencyConflict(
        "this idempotency key was used for a message with another body",
        field="idempotency_key",
        hint="use a new key for new work",
    )


def neighbours(calls: Sequence[Publish]) -> Iterator[list[Publish]]:
    """Calls that can be stored as one, as they come from many callers of one queue; the others by themselves."""
    for key, group in itertools.groupby(
        calls, lambda call: (call.tenant, call.queue) if call.simple and not call.max_depth else None
    ):
        if key is None:
            yield from ([call] for call in group)
        else:
            yield list(group)


# -- expiry

LONG_BODY = b"\xdc"
"""How bodies of more than 15 fields begin: only these can say `dead_at_deadline`, so only these need be looked at."""


def dies(body: Body, expires: int) -> bool:
    """Is a message that waited until its expiry dead, not expired? Yes, if that was its deadline and not its ttl."""
    return body.dead_at_deadline and body.deadline is not None and body.deadline <= expires


# -- claim


def nothing(waits: Sequence[int]) -> list[Lease] | RetryLater:
    """The answer of a claim that got nothing, from queues whose rates allow more so much later."""
    return RetryLater(min(waits)) if waits else []


def next_token(want: QueueClaim, tokens: float) -> int:
    """In how many microseconds the rate of a queue allows one more claim."""
    return max(1, math.ceil((1 - tokens) / want.rate * 1_000_000))


# -- settle


def lost() -> LeaseLost:
    return LeaseLost(
        "this receipt is not the current lease of its message",
        field="receipt",
        hint="the lease ran out or was settled; stop working on it, somebody else may have it",
    )


def trace(verb: str, lease: int) -> int:
    """What stays of a lease in the index it led to. Two verbs that lead to the same one leave different traces."""
    return ~lease if verb in ("release", "reject") else lease


def delay(item: SettleItem, attempts: int) -> int:
    if item.delay_us is not None:
        return item.delay_us
    if not item.delays:
        return 0
    return int(item.delays[min(attempts, len(item.delays)) - 1] * item.spread)


def first_line(error: str | None) -> str | None:
    return error.strip().partition("\n")[0][:500] if error and error.strip() else None
