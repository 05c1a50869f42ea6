"""A snapshot of messages of Redis that several processes read while the queues go on.

Each queue is as one offset of its own journal left it; the queues are looked at one after the other.

A queue is looked at in small steps, and others work meanwhile. What moved since the first step is told by the journal;
those messages are looked at again, until a step finds itself at the journal's end. What was read of the others holds
then too, for they did not move. So all is as that offset left it, and no step is long; the sizes of the indexes are
held against what was found. Ended messages have the offset
by which they ended beside them, so those need not be listed: a piece names a stretch of time and how many it had.
"""

from __future__ import annotations

import re
import secrets
from collections import Counter
from collections.abc import Container, Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from tampu.engines.redis import RedisEngine, admin
from tampu.engines.redis.queue_registry import QueueEntry, QueueRegistry
from tampu.engines.redis.rows import CODE, DEAD, DELAYED, DONE, HELD, READY, decode, encode
from tampu.engines.redis.script_calls import Asking, ok
from tampu.model.decoders import from_msgpack
from tampu.model.errors import Unavailable
from tampu.model.message import State
from tampu.model.states import FINAL, LIVE
from tampu.stores import columns
from tampu.stores.arrow import message_rows, snapshot_rows
from tampu.stores.arrow.snapshot_rows import NONE, SnapshotRows
from tampu.stores.port import MessageQuery, SnapshotPlan
from tampu.stores.redis import rows as redis_rows

STEP = 1000
"""Messages that the server looks at in one go."""
_ROUNDS, _TRIES = 10_000, 5
_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")
_ENDED = frozenset(CODE[state] for state in FINAL)
_INDEXES = tuple(map(str, (*LIVE, State.DEAD)))

Seen = dict[str, tuple[list[Any], int, int]]
"""By number: its place (as in `x`), how many attempts failed, when it expires or -1."""
_FRESH: tuple[list[Any], int, int] = ([READY, 0, "", False], 0, NONE)


class RowRange(msgspec.Struct, array_like=True, frozen=True):
    """Messages of a queue that ended in a time, and no later than at an offset."""

    room: int
    index: str
    low: str
    high: str
    count: int
    offset: int


class Piece(msgspec.Struct, array_like=True):
    registry: str
    now: int
    query: MessageQuery
    rooms: list[tuple[str, str]]
    parts: list[bytes]
    ended: list[RowRange]


_to_piece = from_msgpack(Piece).decode


# -- planning


def plan(engine: RedisEngine, query: MessageQuery, pieces: int) -> SnapshotPlan:
    now = engine.now()
    rooms = [
        room
        for room in engine.query(engine.registry.all(query.tenant))
        if not query.queues or room.queue in query.queues
    ]
    position: dict[str, int] = {}
    live: list[SnapshotRows] = []
    ended: list[RowRange] = []
    for number, room in enumerate(rooms):
        offset, seen, parts = engine.query(_picture(engine.registry, room, query, pieces))
        position[room.partition] = offset
        if query.ids is not None:
            continue
        live.append(_places(number, seen, {CODE[state] for state in query.states} - _ENDED, query))
        ended += (RowRange(number, *part, offset) for part in parts)
    if query.ids is not None:
        live = _by_id(engine, rooms, query)
    names = [(room.tenant, room.queue) for room in rooms]
    empty = Piece(engine.query(_identity(engine.registry)), now, query, names, [], [])
    return SnapshotPlan(position, [encode(piece) for piece in _shared_out(live, ended, pieces, empty)])


def _identity(registry: QueueRegistry) -> Asking[str]:
    """What tells this house from others, made when it is first asked for."""
    (reply,) = yield [registry.write.script("store_identity", registry.tags.registry, secrets.token_hex(16))]
    return str(ok(reply).decode())


def _picture(
    registry: QueueRegistry, room: QueueEntry, query: MessageQuery, pieces: int
) -> Asking[tuple[int, Seen, list[tuple[str, str, str, int]]]]:
    """(offset, the messages that have not ended as of it, and the dead; parts of those that have)"""
    wanted = [str(state) for state in query.states]
    by_time = query.ended_from is not None or query.ended_to is not None
    live = [index for index in _INDEXES if index in wanted and (index == "dead" or not by_time)]
    if query.ids is not None:
        live, wanted = [], []
    low = "-inf" if query.ended_from is None else str(query.ended_from)
    high = "+inf" if query.ended_to is None else str(query.ended_to)
    ends = [str(state) for state in FINAL if state in wanted]
    for _ in range(_TRIES):
        (reply,) = yield [registry.write.plain("HGET", room.tag, "n", "end")]
        offset = int(ok(reply) or 0)
        seen = yield from _survey(registry, room, live)
        for _ in range(_ROUNDS):
            (reply,) = yield [
                registry.write.script(
                    "snapshot_changes", room.tag, offset, STEP, pieces, snapshot_rows.LEAST, low, high, *ends
                )
            ]
            reached, at_end, parts, counts, *touched = ok(reply)
            if reached is None:
                break  # the journal was trimmed past us
            _take(seen, touched)
            offset = int(reached)
            if at_end:
                if _complete(seen, live, decode(counts)):
                    return offset, seen, [tuple(part) for part in decode(parts) or ()]
                break  # something moved that the journal does not tell: the order was changed
    raise Unavailable(f"queue {room.queue} changes faster than it can be read", hint="try again")


def _survey(registry: QueueRegistry, room: QueueEntry, indexes: Sequence[str]) -> Asking[Seen]:
    """All messages of some indexes, as they were when each was met."""
    seen: Seen = {}
    for index in indexes:
        cursor = b"0"
        while True:
            (reply,) = yield [registry.write.script("snapshot_index", room.tag, index, cursor, STEP)]
            cursor, runs, *flat = ok(reply)
            for run in decode(runs) or ():
                prefix, first, count = run[16:27], int(run[27:32], 16), int(run[33:])
                seen.update((f"{prefix}{no:05x}", _FRESH) for no in range(first, first + 2 * count, 2))
            _take(seen, flat)
            if cursor == b"0":
                break
    return seen


def _complete(seen: Seen, indexes: Sequence[str], counts: Sequence[int]) -> bool:
    """Are there as many as the indexes have?"""
    found = Counter(place[0] for place, _, _ in seen.values())
    have = dict(zip(_INDEXES, counts, strict=True))
    return all(found[CODE[State(index)]] == have[index] for index in indexes)


def _take(seen: Seen, flat: Sequence[Any]) -> None:
    for seq, raw, failures, expires in zip(*(flat[i::4] for i in range(4)), strict=True):
        if raw is None:
            seen.pop(seq.decode(), None)
        else:
            place = decode(raw) if raw else _FRESH[0]
            seen[seq.decode()] = (place, failures, int(expires) if expires else NONE)


def _places(room: int, seen: Seen, codes: Container[int], query: MessageQuery) -> SnapshotRows:
    """Those in these states that the query is about."""
    chosen = sorted(
        (int(seq, 16), place, failures, expires)
        for seq, (place, failures, expires) in seen.items()
        if place[0] in codes and snapshot_rows.within(place[3] if place[0] >= DONE else None, query)
    )
    found = [place for _, place, _, _ in chosen]
    return SnapshotRows(
        snapshot_rows.numbers(seq for seq, _, _, _ in chosen),
        np.full(len(chosen), room, np.int64),
        snapshot_rows.numbers(place[0] for place in found),
        snapshot_rows.numbers(place[1] for place in found),
        snapshot_rows.numbers((place[3] or None) if place[0] in (DELAYED, HELD) else None for place in found),
        snapshot_rows.numbers(place[3] if place[0] >= DONE else None for place in found),
        [place[4] if place[0] in (HELD, DEAD) else None for place in found],
        snapshot_rows.numbers(failures for _, _, failures, _ in chosen),
        snapshot_rows.numbers(expires for _, _, _, expires in chosen),
    )


def _shared_out(live: Sequence[SnapshotRows], ended: Sequence[RowRange], pieces: int, empty: Piece) -> list[Piece]:
    total = sum(map(len, live)) + sum(part.count for part in ended)
    size = max(snapshot_rows.LEAST, -(-total // pieces))
    made: list[Piece] = []
    room = 0

    def current() -> Piece:
        nonlocal room
        if room <= 0:
            made.append(msgspec.structs.replace(empty, parts=[], ended=[]))
            room = size
        return made[-1]

    for stretch in ended:
        current().ended.append(stretch)
        room -= stretch.count
    for group in live:
        start = 0
        while start < len(group):
            target = current()
            part = group.part(start, start + room)
            target.parts.append(snapshot_rows.packed(part))
            start += len(part)
            room -= len(part)
    return made


# -- by id


def _placed(registry: QueueRegistry, tenant: str, wanted: Sequence[str]) -> Asking[dict[QueueEntry, list[str]]]:
    """What messages are called in their queues: by the ids that we made, and by those that users gave."""
    groups: dict[QueueEntry, list[str]] = {}
    known = [id for id in dict.fromkeys(wanted) if _ID.match(id)]
    for way in (admin.by_id, admin.by_name) if known else ():
        for found in (yield from way(registry, tenant, known)):
            if found is not None:
                groups.setdefault(found[0], []).append(found[1])
    return groups


def _asked(
    registry: QueueRegistry, script: str, tenant: str, wanted: Sequence[str]
) -> Asking[list[tuple[QueueEntry, list[Any]]]]:
    """(queue, what a script says) of the messages with these ids."""
    groups = yield from _placed(registry, tenant, wanted)
    if not groups:
        return []
    replies = yield [registry.write.script(script, room.tag, encode(names)) for room, names in groups.items()]
    return [(room, ok(reply)) for room, reply in zip(groups, replies, strict=True)]


def _by_id(engine: RedisEngine, rooms: Sequence[QueueEntry], query: MessageQuery) -> list[SnapshotRows]:
    assert query.ids is not None
    numbers = {room.partition: number for number, room in enumerate(rooms)}
    codes = {CODE[state] for state in query.states}
    found = []
    for tenant in sorted({room.tenant for room in rooms}):
        for room, flat in engine.query(_asked(engine.registry, "snapshot_places", tenant, query.ids)):
            seen: Seen = {}
            _take(seen, flat)
            if room.partition in numbers:
                found.append(_places(numbers[room.partition], seen, codes, query))
    return found


# -- reading


def read(engine: RedisEngine, raw: bytes) -> Iterator[pa.RecordBatch]:
    piece = _to_piece(raw)
    if piece.registry != engine.query(_identity(engine.registry)):
        raise Unavailable(
            "this is not the store the read was planned on",
            hint="the url must name the same store on the driver and on every executor",
        )
    rooms = [_room(engine, *name) for name in piece.rooms]
    reader = redis_rows.Reader(engine, rooms, piece.now, piece.query)
    for packed in piece.parts:
        yield from reader.batches(snapshot_rows.unpacked(packed))
    for stretch in piece.ended:
        for part in _ended(engine, rooms[stretch.room], stretch):
            yield from reader.batches(part)


def _room(engine: RedisEngine, tenant: str, queue: str) -> QueueEntry:
    room = engine.query(engine.registry.present(tenant, queue))
    if room is None:
        raise snapshot_rows.gone(1)
    return room


def _ended(engine: RedisEngine, room: QueueEntry, stretch: RowRange) -> Iterator[SnapshotRows]:
    """Page after page by time. Those of one time are passed over by their count; should one be among them that came
    later, it is met again, and known."""
    low, passed = stretch.low, 0
    known: set[bytes] = set()
    found = 0
    while True:
        ask = engine.registry.write.script("page_ended", room.tag, stretch.index, low, stretch.high, passed, STEP)
        (reply,) = engine.wire.send([ask], safe=True)
        flat = ok(reply)
        rows = []
        for seq, score, raw in zip(flat[::3], flat[1::3], flat[2::3], strict=True):
            if score.decode() != low:
                low, passed, known = score.decode(), 0, set()
            passed += 1
            if seq not in known:
                known.add(seq)
                place = decode(raw)
                if place[5] <= stretch.offset:
                    rows.append((int(seq, 16), place))
        found += len(rows)
        if rows:
            yield _over(stretch.room, sorted(rows))
        if len(flat) < 3 * STEP:
            break
    if found < stretch.count:
        raise snapshot_rows.gone(stretch.count - found)


def _over(room: int, rows: Sequence[tuple[int, list[Any]]]) -> SnapshotRows:
    return SnapshotRows(
        snapshot_rows.numbers(seq for seq, _ in rows),
        np.full(len(rows), room, np.int64),
        snapshot_rows.numbers(place[0] for _, place in rows),
        snapshot_rows.numbers(place[1] for _, place in rows),
        ended_at=snapshot_rows.numbers(place[3] for _, place in rows),
    )


def by_ids(engine: RedisEngine, tenant: str, wanted: Sequence[str]) -> pa.Table:
    now = engine.now()
    batches = []
    for room, flat in engine.query(_asked(engine.registry, "select_messages", tenant, wanted)):
        if flat:
            batches.append(message_rows.batch(redis_rows.whole(room, flat, now), columns.MESSAGES.names))
    table = pa.Table.from_batches(batches, columns.MESSAGES) if batches else columns.MESSAGES.empty_table()
    return message_rows.in_order(table, wanted)
