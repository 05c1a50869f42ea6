"""publish: store messages in ready, delayed or held.

Contract: a call is all or nothing, in one script of its queue. Refuses with QueueFull and IdempotencyConflict. A key
replaces the payload of the waiting message that has it. An idempotency key within its window, or an id that exists in
the queue, returns the first message. Simple batches of many callers share one script.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tampu.engines.groups import GroupRate
from tampu.engines.port import Item, Load, Publish
from tampu.engines.redis import ids, rows
from tampu.engines.redis.connection.script_calls import Operation, ScriptCall
from tampu.engines.redis.queue_registry import QueueEntry, RunContext
from tampu.engines.redis.verbs import reservations
from tampu.engines.rules import (
    conflict,
    correlation_word,
    done_at_once,
    ended,
    full,
    made_by_the_store,
    of_another_queue,
)
from tampu.model.errors import TampuError
from tampu.model.message import Message, State
from tampu.model.rank import rank

MAX_MERGED = 2000
"""Maximum number of messages that merged calls put into one script, so that a script stays short."""


def publish_simple(context: RunContext, calls: Sequence[Publish]) -> Operation[list[list[Message] | TampuError]]:
    """Store several simple publishes to one queue in one script."""
    tenant, queue = calls[0].tenant, calls[0].queue
    items = [item for call in calls for item in call.items]
    entry = yield from context.registry.register(tenant, queue)
    (reply,) = yield [context.write.script("publish_simple", entry.tag, *simple_arguments(items))]
    new, now, first = context.read_reply(entry, reply)
    made = simple_messages(entry, items, now, first)
    if new:
        yield from context.registry.confirm(entry)
    answers: list[list[Message] | TampuError] = []
    start = 0
    for call in calls:
        answers.append(made[start : start + len(call.items)])
        start += len(call.items)
    return answers


def simple_arguments(items: Sequence[Item]) -> Sequence[Any]:
    """What `publish_simple.lua` takes."""
    most, types = [item.max_attempts for item in items], [item.body.type for item in items]
    how = items[0].ends
    done = how is not None and how.reason
    return (rows.encode((_same_or_list(most), _same_or_list(types), done)), *(item.packed for item in items))


def simple_messages(entry: QueueEntry, items: Sequence[Item], now: int, first: bytes) -> list[Message]:
    """The messages that `publish_simple.lua` has stored, the first under this number."""
    tenant, queue = entry.tenant, entry.queue
    numbered = zip(entry.ids.many(ids.series(first.decode(), len(items))), items, strict=True)
    how = items[0].ends
    if how is not None:
        return [done_at_once(id, tenant, queue, item, how, now) for id, item in numbered]
    state = State.READY
    return [Message(id, tenant, queue, state, item.body, 0, item.max_attempts, now) for id, item in numbered]


def _same_or_list(values: list[Any]) -> Any:
    """One value if all are the same, else the list."""
    return values[0] if values.count(values[0]) == len(values) else values


def publish(context: RunContext, call: Publish) -> Operation[list[Message]]:
    """One call that needs lookups."""
    if (yield from context.registry.by_ids(item.id for item in call.items if item.id)):
        raise made_by_the_store()
    return (yield from store(context, call, call.items, call.slots, call.group_rate))


def store(
    context: RunContext,
    call: Publish | Load,
    items: Sequence[Item],
    slots: int | None = None,
    rate: GroupRate | None = None,
) -> Operation[list[Message]]:
    """Look up and store the items of a call. ``slots`` and ``rate`` are the limits of a group."""
    packed = [pack_item(call.tenant, item) for item in items]
    bodies = [item.packed for item in items]
    limits = limits_of(slots, rate)
    entry = yield from context.registry.register(call.tenant, call.queue)
    names = reservations.Reservations(context, entry, items) if reservations.needed(items) else None
    while True:
        if names:
            yield from names.reserve(packed)
        (reply,) = yield [publish_call(context, entry, call, packed, bodies, limits)]
        new, now, *answers = context.read_reply(entry, reply)
        if answers[0] == b"void":
            assert names is not None
            names.lose(answers[1:])
            continue
        refuse(call, answers)
        if new:
            yield from context.registry.confirm(entry)
        return messages_of(entry, items, answers, now)


def refuse(call: Publish | Load, answers: Sequence[Any]) -> None:
    """Raise the error if the script refused the call."""
    if answers[0] == b"full":
        raise full(call)
    if answers[0] == b"conflict":
        raise conflict()
    if answers[0] == b"taken":
        raise of_another_queue()


def messages_of(entry: QueueEntry, items: Sequence[Item], answers: Sequence[Any], now: int) -> list[Message]:
    """The messages of a call, from the script's answer for each item."""
    return [_read(entry, item, answer, now) for item, answer in zip(items, answers, strict=True)]


def limits_of(slots: int | None, rate: GroupRate | None) -> tuple[Any, ...]:
    """Slots and rate of a group as `publish.lua` takes them."""
    return (-1 if slots is None else slots, *rows.group_rate(rate))


def publish_call(
    context: RunContext,
    entry: QueueEntry,
    call: Publish | Load,
    packed: list[dict[str, Any]],
    bodies: list[bytes],
    limits: tuple[Any, ...],
) -> ScriptCall:
    return context.write.script(
        "publish", entry.tag, call.max_depth, rows.encode(packed), *bodies, call.remember_us, *limits
    )


def pack_item(tenant: str, item: Item) -> dict[str, Any]:
    """An item as `publish.lua` takes it, without fields that are not set."""
    body = item.body
    packed: dict[str, Any] = {"t": body.type, "a": item.max_attempts}
    if item.ordering == "priority" and item.ageing_us:
        packed["g"] = rows.ageing_base(body.priority, item.ageing_us)
    else:
        packed["r"] = rows.rank_text(rank(item.ordering, 0, body.priority, body.deadline, 0))
    if item.delay_us is not None:
        packed["d"] = item.delay_us + 0
    elif item.run_us is not None:
        packed["u"] = item.run_us + 0
    if item.ttl_us:
        packed["l"] = item.ttl_us + 0
    if item.expire_us is not None:
        packed["e"] = item.expire_us + 0
    for name, value in (
        ("k", body.key), ("n", item.group), ("h", item.hold), ("o", item.id), ("p", rows.kept_fields(body)),
    ):  # fmt: skip
        if value is not None:
            packed[name] = value
    if body.idempotency_key is not None:
        packed["i"], packed["id"] = body.idempotency_key, (item.digest or b"").hex()
        packed["iw"] = item.window_us
    if body.correlation_id is not None:
        packed["c"] = correlation_word(tenant, body.correlation_id).hex()
    if item.ends is not None:
        packed["x"] = (rows.CODE[item.ends.state], item.ends.reason, item.ends.error or False)
    return packed


def _read(entry: QueueEntry, item: Item, answer: list[Any], now: int) -> Message:
    kind, raw_seq, *rest = answer
    seq = raw_seq.decode()
    if kind == b"new":
        code, run_at, expires = rest
        reason = item.hold or ("group" if code == rows.HELD else None)
        made = Message(
            item.id or entry.ids.of(seq), entry.tenant, entry.queue, rows.STATES[code], item.body, 0, item.max_attempts,
            now, run_at, expires, reason=reason,
        )  # fmt: skip
        return ended(made, item.ends)
    if kind == b"again":
        return rows.again(rows.message(entry, seq, *rest))
    # The first message has ended and was removed; its id is still the reply.
    created = int(seq[:11], 16) * 1000
    (own,) = rest
    id = own.decode() or entry.ids.of(seq)
    return Message(id, entry.tenant, entry.queue, State.DONE, item.body, 0, item.max_attempts, created, duplicate=True)
