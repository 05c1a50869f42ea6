"""publish: store messages in ready, delayed or held.

Contract: a call is all or nothing, in one script of its queue. Refuses with QueueFull and IdempotencyConflict. A key
replaces the payload of the waiting message that has it; an idempotency key within its window, or an id that is there,
answers with the first message. Plain batches of many callers are one script.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tampu.engines.groups import GroupRate
from tampu.engines.port import Item, Load, Publish
from tampu.engines.redis import ids, reservations, rows
from tampu.engines.redis.queue_registry import QueueEntry
from tampu.engines.redis.run_context import RunContext
from tampu.engines.redis.script_calls import Asking, ScriptCall
from tampu.engines.rules import full
from tampu.model.errors import TampuError
from tampu.model.message import Message, State
from tampu.model.rank import rank

MOST_TOGETHER = 2000
"""Messages of several callers in one script, so that a script stays short."""


def publish_simple(context: RunContext, calls: Sequence[Publish]) -> Asking[list[list[Message] | TampuError]]:
    """Plain batches of one queue, together."""
    tenant, queue = calls[0].tenant, calls[0].queue
    items = [item for call in calls for item in call.items]
    head = rows.encode((_one([item.max_attempts for item in items]), _one([item.body.type for item in items])))
    bodies = [item.packed for item in items]
    room = yield from context.registry.enter(tenant, queue)
    (reply,) = yield [context.write.script("publish_simple", room.tag, head, *bodies)]
    _, _, new, now, first = context.heard(room, reply)
    state = State.READY
    made = [
        Message(id, tenant, queue, state, item.body, 0, item.max_attempts, now)
        for id, item in zip(room.ids.many(ids.series(first.decode(), len(items))), items, strict=True)
    ]
    if new:
        yield from context.registry.confirm(room)
    answers: list[list[Message] | TampuError] = []
    start = 0
    for call in calls:
        answers.append(made[start : start + len(call.items)])
        start += len(call.items)
    return answers


def _one(values: list[Any]) -> Any:
    """One value, if all are the same."""
    return values[0] if values.count(values[0]) == len(values) else values


def publish(context: RunContext, call: Publish) -> Asking[list[Message]]:
    """One call that has something to look up."""
    return (yield from store(context, call, call.items, call.slots, call.group_rate))


def store(
    context: RunContext,
    call: Publish | Load,
    items: Sequence[Item],
    slots: int | None = None,
    rate: GroupRate | None = None,
) -> Asking[list[Message]]:
    """The items of a call, each looked up; with what may go of a group at once, and how often."""
    packed = [pack_item(item) for item in items]
    bodies = [item.packed for item in items]
    limits = limits_of(slots, rate)
    room = yield from context.registry.enter(call.tenant, call.queue)
    names = reservations.Reservations(context, room, items) if reservations.wanted(items) else None
    while True:
        elsewhere: dict[int, Message] = (yield from names.reserve(packed)) if names else {}
        (reply,) = yield [ask(context, room, call, packed, bodies, limits)]
        _, _, new, now, *answers = context.heard(room, reply)
        if answers[0] == b"void":
            assert names is not None
            names.lose(answers[1:])
            continue
        refuse(call, answers)
        if new:
            yield from context.registry.confirm(room)
        return stored(room, items, answers, elsewhere, now)


def refuse(call: Publish | Load, answers: Sequence[Any]) -> None:
    """Raise what the script refused the call with, if it did."""
    if answers[0] == b"full":
        raise full(call)
    if answers[0] == b"conflict":
        raise rows.conflict()


def stored(
    room: QueueEntry, items: Sequence[Item], answers: Sequence[Any], elsewhere: Mapping[int, Message], now: int
) -> list[Message]:
    """The messages of a call, by what the script said of each."""
    return [
        elsewhere[i] if answer[0] == b"else" else _read(room, item, answer, now)
        for i, (item, answer) in enumerate(zip(items, answers, strict=True))
    ]


def limits_of(slots: int | None, rate: GroupRate | None) -> tuple[Any, ...]:
    """What may go of a group at once, and how often, as `publish.lua` takes it."""
    return (-1 if slots is None else slots, *rows.group_rate(rate))


def ask(
    context: RunContext,
    room: QueueEntry,
    call: Publish | Load,
    packed: list[dict[str, Any]],
    bodies: list[bytes],
    limits: tuple[Any, ...],
) -> ScriptCall:
    return context.write.script(
        "publish", room.tag, call.max_depth, rows.encode(packed), *bodies, call.remember_us, *limits
    )


def pack_item(item: Item) -> dict[str, Any]:
    """An item as `publish.lua` takes it; what is not there is left out."""
    body = item.body
    made: dict[str, Any] = {"t": body.type, "a": item.max_attempts}
    if item.ordering == "priority" and item.ageing_us:
        made["g"] = rows.ageing_base(body.priority, item.ageing_us)
    else:
        made["r"] = rows.rank_text(rank(item.ordering, 0, body.priority, body.deadline, 0))
    if item.delay_us is not None:
        made["d"] = item.delay_us + 0
    elif item.run_us is not None:
        made["u"] = item.run_us + 0
    if item.ttl_us:
        made["l"] = item.ttl_us + 0
    if item.expire_us is not None:
        made["e"] = item.expire_us + 0
    for name, value in (
        ("k", body.key), ("n", item.group), ("h", body.hold), ("o", item.id), ("p", rows.decisive(body)),
    ):  # fmt: skip
        if value is not None:
            made[name] = value
    if body.idempotency_key is not None:
        made["i"], made["id"] = body.idempotency_key, (item.digest or b"").hex()
    return made


def _read(room: QueueEntry, item: Item, answer: list[Any], now: int) -> Message:
    kind, seq = answer[0], answer[1].decode()
    if kind == b"new":
        _, _, code, run_at, expires = answer
        reason = item.body.hold or ("group" if code == rows.HELD else None)
        return Message(
            item.id or room.ids.of(seq), room.tenant, room.queue, rows.STATES[code], item.body, 0, item.max_attempts,
            now, run_at, expires, reason=reason,
        )  # fmt: skip
    if kind == b"again":
        return rows.again(rows.message(room, seq, *answer[2:]))
    # The first message has ended and been removed; its id is still the answer.
    created = int(seq[:11], 16) * 1000
    id = answer[2].decode() or room.ids.of(seq)
    return Message(id, room.tenant, room.queue, State.DONE, item.body, 0, item.max_attempts, created, duplicate=True)
