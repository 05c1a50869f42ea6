"""Rules and errors that are the same in all engines, however they store messages."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence

import msgspec

from tampu.engines.port import Call, Cancel, Ending, Extend, Item, Load, Publish, QueueClaim, RetryLater, SettleItem
from tampu.model.errors import IdempotencyConflict, InvalidMessage, InvalidState, LeaseLost, QueueFull
from tampu.model.message import Body, Lease, Message, State

SWEEP_FIRST = 1000
"""How much a claim promotes, reaps and expires first. The rest is left to maintenance or the next call."""


# -- publish

KEPT_BY_KEY = ("priority", "deadline", "group", "hold", "own_max_attempts", "dead_at_deadline")
"""Fields of the old body that stay when a key replaces the payload."""


def replaced(old: Body, new: Body) -> Body:
    """The new body of a message that waits."""
    return msgspec.structs.replace(new, **{name: getattr(old, name) for name in KEPT_BY_KEY})


def only_extends(calls: Sequence[Call]) -> bool:
    """True if a power cut may take the calls back: leases then end earlier, and their messages are delivered again."""
    return all(type(call) is Extend for call in calls)


def correlation_word(tenant: str, correlation_id: str) -> bytes:
    """Under what messages with this correlation id are found."""
    return hashlib.blake2b(f"{tenant}\0{correlation_id}".encode(), digest_size=16).digest()


def full(call: Publish | Load) -> QueueFull:
    return QueueFull(
        f"queue {call.queue} is full: its max_depth is {call.max_depth} live messages",
        field="queue",
        hint="publish again when workers have caught up, or raise max_depth",
    )


def conflict() -> IdempotencyConflict:
    return IdempotencyConflict(
        "this idempotency key was used for a message with another body",
        field="idempotency_key",
        hint="use a new key for a new message",
    )


def of_another_queue() -> IdempotencyConflict:
    """The error for an id that a message of another queue has. It says nothing of that message."""
    return IdempotencyConflict("this id belongs to a message of another queue", field="id", hint="use a new id")


def made_by_the_store() -> InvalidMessage:
    """The error for an id in the form of those that the store makes. It is the same whether the id is in use or not:
    otherwise publishers could look for messages of others, or take ids before the store does."""
    return InvalidMessage(
        "this id has the form of ids that the store makes", field="id", hint="use a UUID of your own, or none"
    )


def ended(new: Message, how: Ending | None) -> Message:
    """The reply for a new message that ended as it was stored; with None, the message as it is."""
    if how is None:
        return new
    error = how.error if how.state is State.DEAD else None
    return msgspec.structs.replace(
        new, state=how.state, run_us=None, ended_us=new.created_us, reason=how.reason, last_error=error
    )


def all_done_at_once(items: Sequence[Item]) -> bool:
    """True if all of them are done as they are stored, for one reason, and there is nothing to look up."""
    if not items or items[0].ends is None or items[0].ends.state is not State.DONE:
        return False
    how, attempts = items[0].ends, items[0].max_attempts
    return all(
        item.ends == how
        and item.max_attempts == attempts
        and item.id is None
        and item.group is None
        and not item.ttl_us
        and item.expire_us is None
        and item.delay_us is None
        and item.run_us is None
        and not (item.body.key or item.body.idempotency_key or item.body.correlation_id)
        for item in items
    )


def done_at_once(id: str, tenant: str, queue: str, item: Item, how: Ending, now: int) -> Message:
    """The reply for one of them."""
    return Message(id, tenant, queue, how.state, item.body, 0, item.max_attempts, now, ended_us=now, reason=how.reason)


# -- cancel


def not_waiting(call: Cancel, state: State) -> InvalidState:
    """The error for a message that a cancel cannot end."""
    if call.dead is None:
        return InvalidState(f"the message is {state}: nothing to cancel")
    return InvalidState(f"the message is {state}: only waiting messages can be rejected")


# -- expiry


def dies(body: Body, expires: int) -> bool:
    """True if a message past its expiry is dead, not expired: if the expiry was its deadline and not its ttl."""
    return body.dead_at_deadline and body.deadline is not None and body.deadline <= expires


# -- claim


def nothing(waits: Sequence[int]) -> list[Lease] | RetryLater:
    """The reply to a claim that got nothing. ``waits`` is when the rates of its queues allow more."""
    return RetryLater(min(waits)) if waits else []


def next_token(want: QueueClaim, tokens: float) -> int:
    """Microseconds until the rate of a queue allows one more claim."""
    return max(1, math.ceil((1 - tokens) / want.rate * 1_000_000))


# -- settle


def leased() -> InvalidState:
    return InvalidState("the message is leased", hint="cancel it, or wait until it has ended")


def lost() -> LeaseLost:
    return LeaseLost(
        "this receipt is not the current lease of its message",
        field="receipt",
        hint="the lease expired or was settled; stop working on the message, another worker may have it",
    )


def settle_marker(verb: str, lease: int) -> int:
    """Stored with the new state, so that a repeated settle gets the same outcome. Verbs that lead to the
    same state have different markers."""
    return ~lease if verb in ("release", "reject") else lease


def delay(item: SettleItem, attempts: int) -> int:
    """Microseconds until the next try."""
    if item.delay_us is not None:
        return item.delay_us
    if not item.delays:
        return 0
    return int(item.delays[min(attempts, len(item.delays)) - 1] * item.spread)


def first_line(error: str | None) -> str | None:
    return error.strip().partition("\n")[0][:500] if error and error.strip() else None
