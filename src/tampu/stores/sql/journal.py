"""The journal of a SQL server: its bounds, and its records as Arrow.

Readers assign the offsets (docs/decisions/0006-postgresql.md): a process that asks for the end numbers everything
committed so far. What is read here was numbered when the read was planned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar
from uuid import UUID

import numpy as np
import pyarrow as pa

from tampu.engines.encoding import PARTITION
from tampu.engines.sql import journal
from tampu.engines.sql.db import Db
from tampu.engines.sql.engine import SqlEngine
from tampu.engines.sql.ids import TAIL_BITS
from tampu.model.journal import Position
from tampu.stores.arrow import packed_journal, uuid_texts
from tampu.stores.arrow.bulk_ids import Numbers
from tampu.stores.arrow.packed_journal import Names, Record, Spread, Unpacked

R = TypeVar("R")


def bounds(engine: SqlEngine) -> tuple[Position, Position]:
    before, latest = _numbered(engine, _bounds)
    return {PARTITION: before}, {PARTITION: latest}


def _numbered(engine: SqlEngine, work: Callable[[Db], R]) -> R:
    """Run ``work`` after everything that was committed before has its offset."""
    while not engine.readers.ask(journal.catch_up):
        pass
    found = engine.readers.ask_once(work)
    engine.seal()
    return found


def _bounds(db: Db) -> tuple[int, int]:
    first, latest = db.row("select_journal_bounds")
    return (latest if first is None else first - 1), latest


def at_time(engine: SqlEngine, at_us: int) -> Position:
    """Scans the records: late commits leave times out of order, and everything before the position must be older."""

    def find(db: Db) -> int:
        found = db.row("find_journal_since", at_us)
        return int(found[0]) - 1 if found else _bounds(db)[1]

    return {PARTITION: _numbered(engine, find)}


def until_time(engine: SqlEngine, at_us: int) -> Position:
    """The position of the last transition before a time."""

    def find(db: Db) -> int:
        found = db.row("find_journal_until", at_us)
        return int(found[0]) if found else _bounds(db)[0]

    return {PARTITION: _numbered(engine, find)}


def read(
    engine: SqlEngine,
    partition: str,
    after: int,
    upto: int,
    tenant: str | None,
    queues: Sequence[str] | None = None,
) -> Iterator[pa.RecordBatch]:
    assert partition == PARTITION, "the journal has one partition"

    def fetch(after: int) -> tuple[list[Record], int, Names]:
        def work(db: Db) -> tuple[list[Record], int, Names]:
            packed_journal.check_reach(*_bounds(db), after, upto)
            records, end = packed_journal.bounded(db.rows("read_journal_range", after, upto, packed_journal.RECORDS))
            return records, end, {q: engine.registry.name(db, q) for q in {record[3] for record in records}}

        return engine.readers.ask_once(work)

    def unpack(records: Sequence[Record]) -> Unpacked:
        verbs, states, workers, packed, stamps, attempts, types, details, own = packed_journal.decode(records)

        def id_column(spread: Spread) -> pa.Array:
            made = ids(engine.registry.tail, spread.numbers(stamps), spread.seqs(packed))
            return _with_own(made, spread, own) if any(own) else made

        return Unpacked(verbs, states, workers, attempts, types, details, id_column)

    return packed_journal.read(fetch, unpack, PARTITION, after, upto, tenant, queues)


def _with_own(made: pa.Array, spread: Spread, own: Sequence[dict[int, bytes] | None]) -> pa.Array:
    """Replace the ids that users gave; a record has them by position."""
    texts = made.to_pylist()
    starts = np.searchsorted(spread.record, np.arange(len(own)))
    for start, given in zip(starts.tolist(), own, strict=True):
        for place, raw in (given or {}).items():
            texts[start + place] = str(UUID(bytes=raw))
    return pa.array(texts, pa.string())


def ids(tail: int, stamps: Numbers, seqs: Numbers) -> pa.StringArray:
    """Ids from publish times (milliseconds) and numbers; see `tampu.engines.sql.ids`."""
    high = stamps.astype(np.uint64) << np.uint64(16) | np.uint64(0x7000) | (seqs >> 40).astype(np.uint64)
    middle = (np.int64(0x8000) | seqs >> 26 & 0x3FFF).astype(np.uint64) << np.uint64(48)
    low = middle | (seqs & (1 << 26) - 1).astype(np.uint64) << np.uint64(TAIL_BITS) | np.uint64(tail)
    return uuid_texts.of_halves(high, low)
