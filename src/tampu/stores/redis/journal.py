"""The journal of Redis: one partition per queue, named ``tenant/queue``, with its own offsets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tampu.engines.redis import RedisEngine
from tampu.engines.redis.connection.script_calls import Operation, ok
from tampu.engines.redis.ids import TAIL_BYTES, Ids
from tampu.engines.redis.queue_registry import QueueEntry, QueueRegistry
from tampu.model.errors import NotFound
from tampu.model.journal import Position
from tampu.stores.arrow import ids, packed_journal
from tampu.stores.arrow.numbers import Numbers
from tampu.stores.arrow.packed_journal import Names, Record, Spread, Unpacked
from tampu.stores.engine_store import EngineStore

ENTRIES = 1000
"""Entries that one script or command looks at."""


class RedisJournal(EngineStore[RedisEngine]):
    def bounds(self) -> tuple[Position, Position]:
        def operation(registry: QueueRegistry) -> Operation[tuple[Position, Position]]:
            entries = yield from registry.all()
            before, latest = yield from _bounds(registry, entries)
            return before, latest

        return self.engine.query(operation(self.engine.registry))

    def at_time(self, at_us: int) -> Position:
        """Scans the entries: a clock that went back leaves times out of order."""
        return self.engine.query(_search(self.engine.registry, "since", at_us))

    def until_time(self, at_us: int) -> Position:
        return self.engine.query(_search(self.engine.registry, "until", at_us))

    def journal(
        self, partition: str, after: int, upto: int, tenant: str | None, queues: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        owner, _, queue = partition.partition("/")
        if (tenant is not None and owner != tenant) or (queues is not None and queue not in queues):
            return iter(())
        entry = self.engine.query(self.engine.registry.find_existing(owner, queue))
        if entry is None:
            raise NotFound(f"no queue {queue} of tenant {owner}", field="partition")

        def operation(registry: QueueRegistry, after: int) -> Operation[tuple[list[Record], int]]:
            (reply,) = yield [registry.write.plain("XRANGE", entry.tag, "j", f"{after + 1}-0", "+", "COUNT", ENTRIES)]
            before, latest = yield from _bounds(registry, [entry])  # read last: what was trimmed by then may be missing
            packed_journal.check_reach(before[partition], latest[partition], after, upto)
            return packed_journal.bounded([_record(id, fields) for id, fields in ok(reply)])

        def fetch(after: int) -> tuple[list[Record], int, Names]:
            records, end = self.engine.query(operation(self.engine.registry, after))
            return records, end, {0: (owner, queue)}

        def unpack(records: Sequence[Record]) -> Unpacked:
            return _unpacked(records, entry.ids)

        return packed_journal.read(fetch, unpack, partition, after, upto, None, None)


def _bounds(registry: QueueRegistry, entries: Sequence[QueueEntry]) -> Operation[tuple[Position, Position]]:
    before: dict[str, int] = {}
    latest: dict[str, int] = {}
    if entries:
        # Read the first entry before the end: trimming in between only makes the journal look longer than it is.
        calls = [registry.write.plain("XRANGE", entry.tag, "j", "-", "+", "COUNT", 1) for entry in entries]
        calls += [registry.write.plain("HGET", entry.tag, "n", "end") for entry in entries]
        replies = yield calls
        for entry, first, end in zip(entries, replies, replies[len(entries) :], strict=False):
            last = int(ok(end) or 0)
            latest[entry.partition] = last
            before[entry.partition] = min(last, _start(first[0][0]) - 1) if ok(first) else last
    return before, latest


def _start(id: bytes) -> int:
    """The first offset of an entry."""
    last, _, count = id.partition(b"-")
    return int(last) - int(count) + 1


def _search(registry: QueueRegistry, how: str, at_us: int) -> Operation[Position]:
    entries = yield from registry.all()
    before, latest = yield from _bounds(registry, entries)
    found: dict[str, int] = {}
    left = [(entry, "") for entry in entries]
    while left:
        calls = [
            registry.write.script("find_journal_time", entry.tag, how, at_us, start, ENTRIES) for entry, start in left
        ]
        again = []
        for (entry, _), reply in zip(left, (yield calls), strict=True):
            done, *offset = ok(reply)
            if not done:
                again.append((entry, offset[0].decode()))
            elif offset:
                found[entry.partition] = int(offset[0])
            else:
                found[entry.partition] = (latest if how == "since" else before)[entry.partition]
        left = again
    return found


def _record(id: bytes, fields: Sequence[bytes]) -> Record:
    last, _, count = id.partition(b"-")
    _, at, _, packed = fields
    return Record(int(last) - int(count) + 1, int(count), int(at), 0, packed)


def column(scheme: Ids, seqs: Numbers) -> pa.StringArray:
    """The ids of these numbers of a queue."""
    return ids.of_numbers(scheme.tail, scheme.secret, int(scheme.since, 16), TAIL_BYTES, seqs)


def _unpacked(records: Sequence[Record], scheme: Ids) -> Unpacked:
    verbs, states, workers, packed, attempts, types, details, own = packed_journal.decode(records)

    def id_column(spread: Spread) -> pa.Array:
        made = column(scheme, np.concatenate([_seqs(one) for one in packed]))
        if not any(own):
            return made
        given = [_own(one, record.transitions) for one, record in zip(own, records, strict=True)]
        return pc.coalesce(spread.unfolded(given, pa.string()), made)

    return Unpacked(
        verbs,
        [None if state is False else state for state in states],
        [worker or None for worker in workers],
        attempts,
        [_texts(one) for one in types],
        [_texts(one) for one in details],
        id_column,
    )


def _texts(given: Any) -> Any:
    """Lua lists have no null: an empty text stands for it."""
    return [value or None for value in given] if isinstance(given, list) else given or None


def _seqs(packed: Any) -> Numbers:
    if isinstance(packed, list):
        first, count = packed
        return int(first, 16) + np.arange(0, 2 * count, 2, dtype=np.int64)
    return np.array([int(packed[i : i + 16], 16) for i in range(0, len(packed), 16)], np.int64)


def _own(given: Any, count: int) -> list[str | None]:
    if isinstance(given, str):
        return [given[:26] + given[i : i + 10] for i in range(26, len(given), 10)]
    return [id or None for id in given] if given else [None] * count
