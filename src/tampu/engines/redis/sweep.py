"""sweep, trim and what tells when: what time brings about, queue by queue, a bounded step at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tampu.engines.port import PollStatus, Sweep, Swept, Trim
from tampu.engines.redis import reservations, units
from tampu.engines.redis.queue_registry import QueueEntry, QueueRegistry
from tampu.engines.redis.run_context import RunContext
from tampu.engines.redis.script_calls import Asking, ScriptCall, ok
from tampu.model.chance import CHANCE
from tampu.model.errors import TampuError
from tampu.model.times import SECOND, Clock

_TOGETHER = 200
"""Queues asked in one pipeline."""


def _pieces(rooms: list[QueueEntry]) -> Iterator[list[QueueEntry]]:
    for start in range(0, len(rooms), _TOGETHER):
        yield rooms[start : start + _TOGETHER]


def next_due(registry: QueueRegistry) -> Asking[int | None]:
    """The earliest delay, lease, expiry or look at a unit of all queues."""
    (unit,) = yield [_next_unit(registry)]
    at = yield from _next_due(registry, (yield from registry.all()), [])
    return _earliest(at, unit)


def _next_unit(registry: QueueRegistry) -> ScriptCall:
    """When somebody is to look at a unit that began with a document."""
    return registry.write.plain("ZRANGE", registry.tags.registry, "intents.at", 0, 0, "WITHSCORES")


def _earliest(at: int | None, unit: Any) -> int | None:
    """Of the queues' time and what `_next_unit` answers."""
    times = [time for time in (at, int(float(ok(unit)[1])) if ok(unit) else None) if time is not None]
    return min(times, default=None)


def _next_due(registry: QueueRegistry, rooms: list[QueueEntry], replies: list[Any]) -> Asking[int | None]:
    """Of these queues, and of the replies that are there already."""
    replies = list(replies)
    for some in _pieces(rooms):
        replies += yield [registry.write.script("select_next_due", room.tag) for room in some]
    answers = [reply for reply in replies if not isinstance(reply, TampuError)]
    if replies and not answers:
        raise replies[0]
    # Of the servers of a cluster that answer: one that is away must not stop the others' keepers.
    return min((reply for reply in answers if reply is not None), default=None)


def poll_status(
    registry: QueueRegistry, queues: Sequence[tuple[str, str]], me: str, clock: Clock | None
) -> Asking[PollStatus]:
    """In one pipeline, but for queues that nobody told us of yet."""
    write, tag, known = registry.write, registry.tags.registry, registry.remembered()[:_TOGETHER]
    asks = [ScriptCall(tag, ("TIME",)), write.plain("HGET", tag, "n", "revision"), write.plain("GET", tag, "lead")]
    asks += (registry.listing(), _next_unit(registry))
    asks += (write.script("select_next_due", room.tag) for room in known)
    for queue in (registry.tags.queue(*name) for name in queues):
        asks += (write.plain("ZCARD", queue, "ready"), write.plain("HGET", queue, "n", "more"))
    time, revision, holder, listed, unit, *rest = yield asks
    dues, counts = rest[: len(known)], rest[len(known) :]
    others = [room for room in (yield from registry.listed(ok(listed))) if room not in known]
    seconds, micros = ok(time)
    return PollStatus(
        int(seconds) * SECOND + int(micros) if clock is None else clock.now(),
        _earliest((yield from _next_due(registry, others, dues)), unit),
        int(ok(revision) or 0),
        ok(holder) in (None, me.encode()),
        {name: _count(*counts[2 * n : 2 * n + 2]) for n, name in enumerate(queues)},
    )


def _count(first: Any, more: Any) -> int:
    """Of a queue whose server is away, nothing is ready."""
    return sum(0 if reply is None or isinstance(reply, TampuError) else int(reply) for reply in (first, more))


def sweep(context: RunContext, call: Sweep) -> Asking[Swept]:
    (left,) = yield [context.write.script("select_intents", context.registry.tags.registry, call.limit)]
    moved = yield from units.complete_all(context, context.registry.tags.registry, ok(left))
    first, failed = None, None
    for rooms in _pieces((yield from context.registry.all())):
        replies = yield [context.write.script("sweep", room.tag, call.limit) for room in rooms]
        for room, reply in zip(rooms, replies, strict=True):
            if isinstance(reply, TampuError):
                failed = reply
                continue
            found = context.heard(room, reply)
            moved += context.swept(room, found[2])
            moved += yield from units.complete_all(context, room.tag, found[4])
            if found[3] is not None and (first is None or found[3] < first):
                first = found[3]
    if failed is not None and not moved:
        raise failed
    return Swept(moved, first)


def trim(context: RunContext, call: Trim) -> Asking[int]:
    """First everybody is asked how much there is, then the limit is shared out; never the same queue first."""
    rooms = yield from context.registry.all()
    start = CHANCE.randrange(len(rooms)) if rooms else 0
    left = call.limit
    for some in _pieces(rooms[start:] + rooms[:start]):
        if left <= 0:
            break
        amounts = yield [_trim(context, call, room, 0, left) for room in some]
        asks = []
        for room, amount in zip(some, amounts, strict=True):
            share = min(left, ok(amount))
            if share > 0:
                asks.append(_trim(context, call, room, share, 0))
                left -= share
        if asks:
            for reply in (yield asks):
                ok(reply)
    for tenant in sorted({room.tenant for room in rooms}):
        if left > 0:
            left -= yield from _forget_names(context, tenant, left)
    return call.limit - left


def _trim(context: RunContext, call: Trim, room: QueueEntry, limit: int, look: int) -> ScriptCall:
    kept = call.retention_us.get((room.tenant, room.queue), call.default_us)
    read = "" if call.read is None else call.read.get(room.partition, 0)
    return context.write.script("trim", room.tag, limit, kept, call.journal_us, read, look)


def _forget_names(context: RunContext, tenant: str, limit: int) -> Asking[int]:
    """Reservations whose time is over, and those of own ids that are not in use any more."""
    tag = context.registry.tags.tenant(tenant)
    (reply,) = yield [context.write.script("trim_reservations", tag, limit, limit, reservations.LOOK_US)]
    gone, *flat = ok(reply)
    owns = [(name, queue.decode(), token) for name, queue, token in zip(flat[::3], flat[1::3], flat[2::3], strict=True)]
    rooms = dict(
        zip(owns, (yield from context.registry.known_ones(tenant, [queue for _, queue, _ in owns])), strict=True)
    )
    asked = [(own, room) for own, room in rooms.items() if room is not None]
    if asked:
        replies = yield [
            context.write.script("void_reservation", room.tag, name[:1], name[1:], token, reservations.VOID_US)
            for (name, _, token), room in asked
        ]
        used = {own for (own, _), reply in zip(asked, replies, strict=True) if ok(reply)}
        owns = [own for own in owns if own not in used]
    if owns:
        for reply in (yield [context.write.script("drop_reservation", tag, name, token) for name, _, token in owns]):
            gone += ok(reply)
    return int(gone)
