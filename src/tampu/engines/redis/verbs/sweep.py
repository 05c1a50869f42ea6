"""sweep and trim, and when they are next due: work that time causes, queue by queue, in bounded steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tampu.engines.port import PollStatus, Sweep, Swept, Trim
from tampu.engines.redis.connection.script_calls import Operation, ScriptCall, ok
from tampu.engines.redis.queue_registry import QueueEntry, QueueRegistry, RunContext
from tampu.engines.redis.verbs import reservations, units
from tampu.model.errors import TampuError
from tampu.model.times import CHANCE, SECOND, Clock

_CHUNK = 200
"""Queues in one pipeline."""


def _chunks(entries: list[QueueEntry]) -> Iterator[list[QueueEntry]]:
    for start in range(0, len(entries), _CHUNK):
        yield entries[start : start + _CHUNK]


def next_due(registry: QueueRegistry) -> Operation[int | None]:
    """The earliest time at which a delay, a lease, an expiry or a unit of any queue is due."""
    (unit,) = yield [_next_unit(registry)]
    at = yield from _next_due(registry, (yield from registry.all()), [])
    return _earliest(at, unit)


def _next_unit(registry: QueueRegistry) -> ScriptCall:
    """When to check the next unfinished unit that began with a document."""
    return registry.write.plain("ZRANGE", registry.tags.registry, "intents.at", 0, 0, "WITHSCORES")


def _earliest(at: int | None, unit: Any) -> int | None:
    """The earlier of a time and the reply to `_next_unit`."""
    times = [] if at is None else [at]
    if ok(unit):
        _, score = unit
        times.append(int(float(score)))
    return min(times, default=None)


def _next_due(registry: QueueRegistry, entries: list[QueueEntry], replies: list[Any]) -> Operation[int | None]:
    """The earliest due time of these queues and of the given replies."""
    replies = list(replies)
    for some in _chunks(entries):
        replies += yield [registry.write.script("select_next_due", entry.tag) for entry in some]
    answers = [reply for reply in replies if not isinstance(reply, TampuError)]
    if replies and not answers:
        raise replies[0]
    # Ignore servers that do not answer: one that is away must not stop maintenance on the others.
    return min((reply for reply in answers if reply is not None), default=None)


def poll_status(
    registry: QueueRegistry, queues: Sequence[tuple[str, str]], me: str, clock: Clock | None
) -> Operation[PollStatus]:
    """One pipeline, and another for queues that are not cached yet."""
    write, tag, known = registry.write, registry.tags.registry, registry.cached()[:_CHUNK]
    calls = [ScriptCall(tag, ("TIME",)), write.plain("HGET", tag, "n", "revision"), write.plain("GET", tag, "lead")]
    calls += (registry.list_call(), _next_unit(registry))
    calls += (write.script("select_next_due", entry.tag) for entry in known)
    for queue in (registry.tags.queue(*name) for name in queues):
        calls += (write.plain("ZCARD", queue, "ready"), write.plain("HGET", queue, "n", "more"))
    time, revision, holder, listed, unit, *rest = yield calls
    dues, counts = rest[: len(known)], rest[len(known) :]
    others = [entry for entry in (yield from registry.read_list(ok(listed))) if entry not in known]
    seconds, micros = ok(time)
    return PollStatus(
        int(seconds) * SECOND + int(micros) if clock is None else clock.now(),
        _earliest((yield from _next_due(registry, others, dues)), unit),
        int(ok(revision) or 0),
        ok(holder) in (None, me.encode()),
        {name: _count(*counts[2 * n : 2 * n + 2]) for n, name in enumerate(queues)},
    )


def _count(first: Any, more: Any) -> int:
    """Number of ready messages; 0 if the server of the queue is away."""
    return sum(0 if reply is None or isinstance(reply, TampuError) else int(reply) for reply in (first, more))


def sweep(context: RunContext, call: Sweep) -> Operation[Swept]:
    (left,) = yield [context.write.script("select_intents", context.registry.tags.registry, call.limit)]
    moved = yield from units.complete_all(context, context.registry.tags.registry, ok(left))
    first, failed = None, None
    for entries in _chunks((yield from context.registry.all())):
        replies = yield [context.write.script("sweep", entry.tag, call.limit) for entry in entries]
        for entry, reply in zip(entries, replies, strict=True):
            if isinstance(reply, TampuError):
                failed = reply
                continue
            swept, due, intents = context.read_reply(entry, reply)
            moved += context.swept(entry, swept)
            moved += yield from units.complete_all(context, entry.tag, intents)
            if due is not None and (first is None or due < first):
                first = due
    if failed is not None and not moved:
        raise failed
    return Swept(moved, first)


def trim(context: RunContext, call: Trim) -> Operation[int]:
    """Ask all queues how much they can trim, then share out the limit. Starts with a random queue."""
    entries = yield from context.registry.all()
    start = CHANCE.randrange(len(entries)) if entries else 0
    left = call.limit
    for some in _chunks(entries[start:] + entries[:start]):
        if left <= 0:
            break
        amounts = yield [_trim(context, call, entry, 0, left) for entry in some]
        calls = []
        for entry, amount in zip(some, amounts, strict=True):
            share = min(left, ok(amount))
            if share > 0:
                calls.append(_trim(context, call, entry, share, 0))
                left -= share
        if calls:
            for reply in (yield calls):
                ok(reply)
    for tenant in sorted({entry.tenant for entry in entries}):
        if left > 0:
            left -= yield from _trim_reservations(context, tenant, left)
    return call.limit - left


def _trim(context: RunContext, call: Trim, entry: QueueEntry, limit: int, estimate: int) -> ScriptCall:
    kept = call.retention_us.get((entry.tenant, entry.queue), call.default_us)
    read = "" if call.read is None else call.read.get(entry.partition, 0)
    return context.write.script("trim", entry.tag, limit, kept, call.journal_us, read, estimate, int(call.keep_results))


def _trim_reservations(context: RunContext, tenant: str, limit: int) -> Operation[int]:
    """Remove expired reservations, and those of user-given ids that are no longer in use."""
    tag = context.registry.tags.tenant(tenant)
    (reply,) = yield [context.write.script("trim_reservations", tag, limit, limit, reservations.LOOK_US)]
    gone, *flat = ok(reply)
    owns = [(name, queue.decode(), token) for name, queue, token in zip(flat[::3], flat[1::3], flat[2::3], strict=True)]
    entries = dict(
        zip(owns, (yield from context.registry.find_many(tenant, [queue for _, queue, _ in owns])), strict=True)
    )
    asked = [(own, entry) for own, entry in entries.items() if entry is not None]
    if asked:
        replies = yield [
            context.write.script("void_reservation", entry.tag, name[:1], name[1:], token, reservations.VOID_US)
            for (name, _, token), entry in asked
        ]
        used = {own for (own, _), reply in zip(asked, replies, strict=True) if ok(reply)}
        owns = [own for own in owns if own not in used]
    if owns:
        for reply in (yield [context.write.script("drop_reservation", tag, name, token) for name, _, token in owns]):
            gone += ok(reply)
    return int(gone)
