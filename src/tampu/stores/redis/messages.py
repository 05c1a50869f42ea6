"""A snapshot of messages in Redis, read by several processes while the queues stay in use.

Each queue is in the state of one offset of its own journal. The queues are read one after the other.

A queue is read in small steps while other processes work. The journal tells which messages moved since the first step;
those are read again, until a step reaches the end of the journal. The other messages did not move, so everything has
the state of that offset, and no step takes long. The sizes of the indexes are compared with what was found. Ended
messages have the offset of their end stored beside them, so they are not listed: a piece has a time range and a count.
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

from tampu.engines.redis import RedisEngine
from tampu.engines.redis.connection.script_calls import Operation, ok
from tampu.engines.redis.queue_registry import QueueEntry, QueueRegistry
from tampu.engines.redis.rows import CODE, Status, decode, encode, read_status
from tampu.engines.redis.verbs import admin
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
"""Messages that one script looks at."""
_ROUNDS, _TRIES = 10_000, 5
_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")
_ENDED = frozenset(CODE[state] for state in FINAL)
_INDEXES = tuple(map(str, (*LIVE, State.DEAD)))

Seen = dict[str, tuple[Status, int, int]]
"""By number: status, number of failed attempts, expiry or -1."""
_PUBLISHED = (read_status(None), 0, NONE)


class RowRange(msgspec.Struct, array_like=True, frozen=True):
    """Messages of a queue that ended in a time range, and not after an offset."""

    queue: int
    index: str
    low: str
    high: str
    count: int
    offset: int


class Piece(msgspec.Struct, array_like=True):
    registry: str
    now: int
    query: MessageQuery
    queues: list[tuple[str, str]]
    parts: list[bytes]
    ended: list[RowRange]


_to_piece = from_msgpack(Piece).decode


# -- planning


def plan(engine: RedisEngine, query: MessageQuery, pieces: int) -> SnapshotPlan:
    now = engine.now()
    entries = [
        entry
        for entry in engine.query(engine.registry.all(query.tenant))
        if not query.queues or entry.queue in query.queues
    ]
    position: dict[str, int] = {}
    live: list[SnapshotRows] = []
    ended: list[RowRange] = []
    for number, entry in enumerate(entries):
        offset, seen, parts = engine.query(_read_queue(engine.registry, entry, query, pieces))
        position[entry.partition] = offset
        if query.ids is not None:
            continue
        live.append(_snapshot_rows(number, seen, {CODE[state] for state in query.states} - _ENDED, query))
        ended += (RowRange(number, *part, offset) for part in parts)
    if query.ids is not None:
        live = _by_id(engine, entries, query)
    names = [(entry.tenant, entry.queue) for entry in entries]
    empty = Piece(engine.query(_identity(engine.registry)), now, query, names, [], [])
    return SnapshotPlan(position, [encode(piece) for piece in _share_out(live, ended, pieces, empty)])


def _identity(registry: QueueRegistry) -> Operation[str]:
    """The unique name of this store, created on first use."""
    (reply,) = yield [registry.write.script("store_identity", registry.tags.registry, secrets.token_hex(16))]
    return str(ok(reply).decode())


def _read_queue(
    registry: QueueRegistry, entry: QueueEntry, query: MessageQuery, pieces: int
) -> Operation[tuple[int, Seen, list[tuple[str, str, str, int]]]]:
    """(offset, its live and dead messages, time ranges of the other ended ones)"""
    wanted = [str(state) for state in query.states]
    by_time = query.ended_from is not None or query.ended_to is not None
    live = [index for index in _INDEXES if index in wanted and (index == "dead" or not by_time)]
    if query.ids is not None:
        live, wanted = [], []
    low = "-inf" if query.ended_from is None else str(query.ended_from)
    high = "+inf" if query.ended_to is None else str(query.ended_to)
    ends = [str(state) for state in FINAL if state in wanted]
    for _ in range(_TRIES):
        (reply,) = yield [registry.write.plain("HGET", entry.tag, "n", "end")]
        offset = int(ok(reply) or 0)
        seen = yield from _read_indexes(registry, entry, live)
        for _ in range(_ROUNDS):
            (reply,) = yield [
                registry.write.script(
                    "snapshot_changes", entry.tag, offset, STEP, pieces, snapshot_rows.LEAST, low, high, *ends
                )
            ]
            reached, at_end, parts, counts, *touched = ok(reply)
            if reached is None:
                break  # the journal was trimmed beyond our offset
            _take(seen, touched)
            offset = int(reached)
            if at_end:
                if _complete(seen, live, decode(counts)):
                    return offset, seen, [tuple(part) for part in decode(parts) or ()]
                break  # something moved without a journal entry: messages were reranked
    raise Unavailable(f"queue {entry.queue} changes faster than it can be read", hint="try again later")


def _read_indexes(registry: QueueRegistry, entry: QueueEntry, indexes: Sequence[str]) -> Operation[Seen]:
    """All messages of some indexes, each as it was when it was read."""
    seen: Seen = {}
    for index in indexes:
        cursor = b"0"
        while True:
            (reply,) = yield [registry.write.script("snapshot_index", entry.tag, index, cursor, STEP)]
            cursor, runs, *flat = ok(reply)
            for run in decode(runs) or ():
                prefix, first, count = run[16:27], int(run[27:32], 16), int(run[33:])
                seen.update((f"{prefix}{no:05x}", _PUBLISHED) for no in range(first, first + 2 * count, 2))
            _take(seen, flat)
            if cursor == b"0":
                break
    return seen


def _complete(seen: Seen, indexes: Sequence[str], counts: Sequence[int]) -> bool:
    """True if as many messages were found as the indexes have."""
    found = Counter(status.state for status, _, _ in seen.values())
    have = dict(zip(_INDEXES, counts, strict=True))
    return all(found[CODE[State(index)]] == have[index] for index in indexes)


def _take(seen: Seen, flat: Sequence[Any]) -> None:
    for seq, raw, failures, expires in zip(*(flat[i::4] for i in range(4)), strict=True):
        if raw is None:
            seen.pop(seq.decode(), None)
        else:
            seen[seq.decode()] = (read_status(raw), failures, int(expires) if expires else NONE)


def _snapshot_rows(queue: int, seen: Seen, codes: Container[int], query: MessageQuery) -> SnapshotRows:
    """The messages in these states that match the query."""
    chosen = sorted(
        (int(seq, 16), status, failures, expires)
        for seq, (status, failures, expires) in seen.items()
        if status.state in codes and snapshot_rows.within(status.ended_at, query)
    )
    made = redis_rows.statuses(queue, [seq for seq, _, _, _ in chosen], [status for _, status, _, _ in chosen])
    made.failures = snapshot_rows.numbers(failures for _, _, failures, _ in chosen)
    made.expires = snapshot_rows.numbers(expires for _, _, _, expires in chosen)
    return made


def _share_out(live: Sequence[SnapshotRows], ended: Sequence[RowRange], pieces: int, empty: Piece) -> list[Piece]:
    total = sum(map(len, live)) + sum(part.count for part in ended)
    size = max(snapshot_rows.LEAST, -(-total // pieces))
    made: list[Piece] = []
    left = 0

    def current() -> Piece:
        nonlocal left
        if left <= 0:
            made.append(msgspec.structs.replace(empty, parts=[], ended=[]))
            left = size
        return made[-1]

    for row_range in ended:
        current().ended.append(row_range)
        left -= row_range.count
    for group in live:
        start = 0
        while start < len(group):
            target = current()
            part = group.part(start, start + left)
            target.parts.append(snapshot_rows.packed(part))
            start += len(part)
            left -= len(part)
    return made


# -- by id


def _located(registry: QueueRegistry, tenant: str, wanted: Sequence[str]) -> Operation[dict[QueueEntry, list[str]]]:
    """Numbers or given ids of messages, by queue."""
    groups: dict[QueueEntry, list[str]] = {}
    known = [id for id in dict.fromkeys(wanted) if _ID.match(id)]
    for way in (admin.by_id, admin.by_name) if known else ():
        for located in (yield from way(registry, tenant, known)):
            if located is not None:
                entry, name = located
                groups.setdefault(entry, []).append(name)
    return groups


def _run_by_id(
    registry: QueueRegistry, script: str, tenant: str, wanted: Sequence[str]
) -> Operation[list[tuple[QueueEntry, list[Any]]]]:
    """Run a script on the messages with these ids. Returns (queue, reply) pairs."""
    groups = yield from _located(registry, tenant, wanted)
    if not groups:
        return []
    replies = yield [registry.write.script(script, entry.tag, encode(names)) for entry, names in groups.items()]
    return [(entry, ok(reply)) for entry, reply in zip(groups, replies, strict=True)]


def _by_id(engine: RedisEngine, entries: Sequence[QueueEntry], query: MessageQuery) -> list[SnapshotRows]:
    assert query.ids is not None
    numbers = {entry.partition: number for number, entry in enumerate(entries)}
    codes = {CODE[state] for state in query.states}
    found = []
    for tenant in sorted({entry.tenant for entry in entries}):
        for entry, flat in engine.query(_run_by_id(engine.registry, "snapshot_places", tenant, query.ids)):
            seen: Seen = {}
            _take(seen, flat)
            if entry.partition in numbers:
                found.append(_snapshot_rows(numbers[entry.partition], seen, codes, query))
    return found


# -- reading


def read(engine: RedisEngine, raw: bytes) -> Iterator[pa.RecordBatch]:
    piece = _to_piece(raw)
    if piece.registry != engine.query(_identity(engine.registry)):
        raise Unavailable(
            "this is not the store the read was planned on",
            hint="the url must name the same store on the driver and on every executor",
        )
    entries = [_entry(engine, *name) for name in piece.queues]
    reader = redis_rows.Reader(engine, entries, piece.now, piece.query)
    for packed in piece.parts:
        yield from reader.batches(snapshot_rows.unpacked(packed))
    for row_range in piece.ended:
        for part in _ended(engine, entries[row_range.queue], row_range):
            yield from reader.batches(part)


def _entry(engine: RedisEngine, tenant: str, queue: str) -> QueueEntry:
    entry = engine.query(engine.registry.find_existing(tenant, queue))
    if entry is None:
        raise snapshot_rows.gone(1)
    return entry


def _ended(engine: RedisEngine, entry: QueueEntry, row_range: RowRange) -> Iterator[SnapshotRows]:
    """Pages by time. Messages with the same time are skipped by count. If one was added among them meanwhile, another
    is read twice, and ignored the second time."""
    low, passed = row_range.low, 0
    known: set[bytes] = set()
    found = 0
    while True:
        call = engine.registry.write.script("page_ended", entry.tag, row_range.index, low, row_range.high, passed, STEP)
        (reply,) = engine.wire.send([call], safe=True)
        flat = ok(reply)
        rows = []
        for seq, score, raw in zip(flat[::3], flat[1::3], flat[2::3], strict=True):
            if score.decode() != low:
                low, passed, known = score.decode(), 0, set()
            passed += 1
            if seq not in known:
                known.add(seq)
                status = read_status(raw)
                if status.last <= row_range.offset:
                    rows.append((int(seq, 16), status))
        found += len(rows)
        if rows:
            yield _ended_rows(row_range.queue, sorted(rows))
        if len(flat) < 3 * STEP:
            break
    if found < row_range.count:
        raise snapshot_rows.gone(row_range.count - found)


def _ended_rows(queue: int, rows: Sequence[tuple[int, Status]]) -> SnapshotRows:
    return SnapshotRows(
        snapshot_rows.numbers(seq for seq, _ in rows),
        np.full(len(rows), queue, np.int64),
        snapshot_rows.numbers(status.state for _, status in rows),
        snapshot_rows.numbers(status.attempts for _, status in rows),
        ended_at=snapshot_rows.numbers(status.ended_at for _, status in rows),
    )


def by_ids(engine: RedisEngine, tenant: str, wanted: Sequence[str]) -> pa.Table:
    now = engine.now()
    batches = []
    for entry, flat in engine.query(_run_by_id(engine.registry, "select_messages", tenant, wanted)):
        if flat:
            batches.append(message_rows.batch(redis_rows.whole(entry, flat, now), columns.MESSAGES.names))
    table = pa.Table.from_batches(batches, columns.MESSAGES) if batches else columns.MESSAGES.empty_table()
    return message_rows.in_order(table, wanted)
