"""sweep, trim and what tells when: what time brings about, queue by queue, a bounded step at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tampu.engines.port import Glance, Sweep, Swept, Trim
from tampu.engines.redis import naming, units
from tampu.engines.redis.asking import Ask, Asking, ok
from tampu.engines.redis.house import House, Room
from tampu.engines.redis.turn import Turn
from tampu.model.chance import CHANCE
from tampu.model.errors import TampuError
from tampu.model.times import SECOND, Clock

_TOGETHER = 200
"""Queues asked in one pipeline."""


def _pieces(rooms: list[Room]) -> Iterator[list[Room]]:
    for start in range(0, len(rooms), _TOGETHER):
        yield rooms[start : start + _TOGETHER]


def next_due(house: House) -> Asking[int | None]:
    """The earliest delay, lease, expiry or look at a unit of all queues."""
    (unit,) = yield [_next_unit(house)]
    at = yield from _next_due(house, (yield from house.all()), [])
    return _earliest(at, unit)


def _next_unit(house: House) -> Ask:
    """When somebody is to look at a unit that began with a document."""
    return house.write.plain("ZRANGE", house.tags.house, "intents.at", 0, 0, "WITHSCORES")


def _earliest(at: int | None, unit: Any) -> int | None:
    """Of the queues' time and what `_next_unit` answers."""
    times = [time for time in (at, int(float(ok(unit)[1])) if ok(unit) else None) if time is not None]
    return min(times, default=None)


def _next_due(house: House, rooms: list[Room], replies: list[Any]) -> Asking[int | None]:
    """Of these queues, and of the replies that are there already."""
    replies = list(replies)
    for some in _pieces(rooms):
        replies += yield [house.write.script("select_next_due", room.tag) for room in some]
    answers = [reply for reply in replies if not isinstance(reply, TampuError)]
    if replies and not answers:
        raise replies[0]
    # Of the servers of a cluster that answer: one that is away must not stop the others' keepers.
    return min((reply for reply in answers if reply is not None), default=None)


def glance(house: House, queues: Sequence[tuple[str, str]], me: str, clock: Clock | None) -> Asking[Glance]:
    """In one pipeline, but for queues that nobody told us of yet."""
    write, tag, known = house.write, house.tags.house, house.remembered()[:_TOGETHER]
    asks = [Ask(tag, ("TIME",)), write.plain("HGET", tag, "n", "revision"), write.plain("GET", tag, "lead")]
    asks += (house.listing(), _next_unit(house))
    asks += (write.script("select_next_due", room.tag) for room in known)
    for queue in (house.tags.queue(*name) for name in queues):
        asks += (write.plain("ZCARD", queue, "ready"), write.plain("HGET", queue, "n", "more"))
    time, revision, holder, listed, unit, *rest = yield asks
    dues, counts = rest[: len(known)], rest[len(known) :]
    others = [room for room in (yield from house.listed(ok(listed))) if room not in known]
    seconds, micros = ok(time)
    return Glance(
        int(seconds) * SECOND + int(micros) if clock is None else clock.now(),
        _earliest((yield from _next_due(house, others, dues)), unit),
        int(ok(revision) or 0),
        ok(holder) in (None, me.encode()),
        {name: _count(*counts[2 * n : 2 * n + 2]) for n, name in enumerate(queues)},
    )


def _count(first: Any, more: Any) -> int:
    """Of a queue whose server is away, nothing is ready."""
    return sum(0 if reply is None or isinstance(reply, TampuError) else int(reply) for reply in (first, more))


def sweep(turn: Turn, call: Sweep) -> Asking[Swept]:
    (left,) = yield [turn.write.script("select_intents", turn.house.tags.house, call.limit)]
    moved = yield from units.complete_all(turn, turn.house.tags.house, ok(left))
    first, failed = None, None
    for rooms in _pieces((yield from turn.house.all())):
        replies = yield [turn.write.script("sweep", room.tag, call.limit) for room in rooms]
        for room, reply in zip(rooms, replies, strict=True):
            if isinstance(reply, TampuError):
                failed = reply
                continue
            found = turn.heard(room, reply)
            moved += turn.swept(room, found[2])
            moved += yield from units.complete_all(turn, room.tag, found[4])
            if found[3] is not None and (first is None or found[3] < first):
                first = found[3]
    if failed is not None and not moved:
        raise failed
    return Swept(moved, first)


def trim(turn: Turn, call: Trim) -> Asking[int]:
    """First everybody is asked how much there is, then the limit is shared out; never the same queue first."""
    rooms = yield from turn.house.all()
    start = CHANCE.randrange(len(rooms)) if rooms else 0
    left = call.limit
    for some in _pieces(rooms[start:] + rooms[:start]):
        if left <= 0:
            break
        amounts = yield [_trim(turn, call, room, 0, left) for room in some]
        asks = []
        for room, amount in zip(some, amounts, strict=True):
            share = min(left, ok(amount))
            if share > 0:
                asks.append(_trim(turn, call, room, share, 0))
                left -= share
        if asks:
            for reply in (yield asks):
                ok(reply)
    for tenant in sorted({room.tenant for room in rooms}):
        if left > 0:
            left -= yield from _forget_names(turn, tenant, left)
    return call.limit - left


def _trim(turn: Turn, call: Trim, room: Room, limit: int, look: int) -> Ask:
    kept = call.retention_us.get((room.tenant, room.queue), call.default_us)
    read = "" if call.read is None else call.read.get(room.partition, 0)
    return turn.write.script("trim", room.tag, limit, kept, call.journal_us, read, look)


def _forget_names(turn: Turn, tenant: str, limit: int) -> Asking[int]:
    """Reservations whose time is over, and those of own ids that are not in use any more."""
    tag = turn.house.tags.tenant(tenant)
    (reply,) = yield [turn.write.script("trim_reservations", tag, limit, limit, naming.LOOK_US)]
    gone, *flat = ok(reply)
    owns = [(name, queue.decode(), token) for name, queue, token in zip(flat[::3], flat[1::3], flat[2::3], strict=True)]
    rooms = dict(zip(owns, (yield from turn.house.known_ones(tenant, [queue for _, queue, _ in owns])), strict=True))
    asked = [(own, room) for own, room in rooms.items() if room is not None]
    if asked:
        replies = yield [
            turn.write.script("void_reservation", room.tag, name[:1], name[1:], token, naming.VOID_US)
            for (name, _, token), room in asked
        ]
        used = {own for (own, _), reply in zip(asked, replies, strict=True) if ok(reply)}
        owns = [own for own in owns if own not in used]
    if owns:
        for reply in (yield [turn.write.script("drop_reservation", tag, name, token) for name, _, token in owns]):
            gone += ok(reply)
    return int(gone)
