"""sweep and trim: what time brings about, queue by queue, a bounded step at a time."""

from __future__ import annotations

import random
from collections.abc import Iterator

from tampu.engines.port import Sweep, Swept, Trim
from tampu.engines.redis import naming
from tampu.engines.redis.asking import Ask, Asking, ok
from tampu.engines.redis.house import House, Room
from tampu.engines.redis.turn import Turn
from tampu.model.errors import TampuError

_TOGETHER = 200
"""Queues asked in one pipeline."""


def _pieces(rooms: list[Room]) -> Iterator[list[Room]]:
    for start in range(0, len(rooms), _TOGETHER):
        yield rooms[start : start + _TOGETHER]


def next_due(house: House) -> Asking[int | None]:
    """The earliest delay, lease or expiry of all queues."""
    first: int | None = None
    failed: TampuError | None = None
    answered = False
    for rooms in _pieces((yield from house.all())):
        for reply in (yield [house.write.script("due", room.tag) for room in rooms]):
            if isinstance(reply, TampuError):
                failed = reply
                continue
            answered = True
            if reply is not None and (first is None or reply < first):
                first = reply
    if failed is not None and not answered:
        raise failed
    return first  # of the servers of a cluster that answer: one that is away must not stop the others' keepers


def sweep(turn: Turn, call: Sweep) -> Asking[Swept]:
    moved, first, failed = 0, None, None
    for rooms in _pieces((yield from turn.house.all())):
        replies = yield [turn.write.script("sweep", room.tag, call.limit) for room in rooms]
        for room, reply in zip(rooms, replies, strict=True):
            if isinstance(reply, TampuError):
                failed = reply
                continue
            found = turn.heard(room, reply)
            moved += found[2]
            if len(found) > 3 and found[3] is not None and (first is None or found[3] < first):
                first = found[3]
    if failed is not None and not moved:
        raise failed
    return Swept(moved, first)


def trim(turn: Turn, call: Trim) -> Asking[int]:
    """First everybody is asked how much there is, then the limit is shared out; never the same queue first."""
    rooms = yield from turn.house.all()
    start = random.randrange(len(rooms)) if rooms else 0
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
    (reply,) = yield [turn.write.script("names", tag, limit, limit, naming.LOOK_US)]
    gone, *owns = ok(reply)
    for name, queue, token in zip(owns[::3], owns[1::3], owns[2::3], strict=True):
        room = yield from turn.house.known(tenant, queue.decode())
        if room is not None:
            (used,) = yield [turn.write.script("void", room.tag, name[:1], name[1:], token, naming.VOID_US)]
            if ok(used):
                continue
        (reply,) = yield [turn.write.script("unname", tag, name, token)]
        gone += ok(reply)
    return int(gone)
