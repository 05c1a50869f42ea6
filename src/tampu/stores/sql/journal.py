"""The journal of a SQL database: its bounds, and its records as Arrow."""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar
from uuid import UUID

import numpy as np
import pyarrow as pa

from tampu.engines.encoding import PARTITION
from tampu.engines.sql.db import Db
from tampu.engines.sql.engine import SqlEngine
from tampu.engines.sqlite import SqliteEngine
from tampu.model.journal import Position
from tampu.stores.arrow import ids, packed_journal
from tampu.stores.arrow.numbers import Numbers, unpack_seqs
from tampu.stores.arrow.packed_journal import Names, Record, Spread, Unpacked
from tampu.stores.engine_store import EngineStore

R = TypeVar("R")
E = TypeVar("E", bound=SqlEngine | SqliteEngine)


class SqlJournal(EngineStore[E], abc.ABC):
    def numbered(self, work: Callable[[Db], R]) -> R:
        """Run ``work`` after everything that was committed before has its offset."""
        return self.engine.readers.run_in_snapshot(work)

    def ids(self, stamps: Numbers, seqs: Numbers) -> pa.StringArray:
        """The generated ids of messages, from publish times in milliseconds and numbers."""
        return ids.of_stamps(self.engine.registry.id, stamps, seqs)

    def bounds(self) -> tuple[Position, Position]:
        before, latest = self.numbered(_bounds)
        return {PARTITION: before}, {PARTITION: latest}

    def at_time(self, at_us: int) -> Position:
        """Scans the records: times may be out of order, and everything before the position must be older."""

        def find(db: Db) -> int:
            first = db.value("find_journal_since", at_us)
            _, latest = _bounds(db)
            return latest if first is None else int(first) - 1

        return {PARTITION: self.numbered(find)}

    def until_time(self, at_us: int) -> Position:
        def find(db: Db) -> int:
            last = db.value("find_journal_until", at_us)
            before, _ = _bounds(db)
            return before if last is None else int(last)

        return {PARTITION: self.numbered(find)}

    def journal(
        self, partition: str, after: int, upto: int, tenant: str | None, queues: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        assert partition == PARTITION, "the journal has one partition"
        registry, readers = self.engine.registry, self.engine.readers

        def fetch(after: int) -> tuple[list[Record], int, Names]:
            def work(db: Db) -> tuple[list[Record], int, Names]:
                packed_journal.check_reach(*_bounds(db), after, upto)
                rows = db.rows("read_journal_range", after, upto, packed_journal.RECORDS)
                records, end = packed_journal.bounded(map(Record._make, rows))
                return records, end, {q: registry.name(db, q) for q in {record.q for record in records}}

            return readers.run_in_snapshot(work)

        return packed_journal.read(fetch, self._unpacked, PARTITION, after, upto, tenant, queues)

    def _unpacked(self, records: Sequence[Record]) -> Unpacked:
        verbs, states, workers, packed, stamps, attempts, types, details, own = packed_journal.decode(records)

        def id_column(spread: Spread) -> pa.Array:
            made = self.ids(spread.numbers(stamps), unpack_seqs(packed)[0])
            return _with_given(made, spread, own) if any(own) else made

        return Unpacked(verbs, states, workers, attempts, types, details, id_column)


def _bounds(db: Db) -> tuple[int, int]:
    first, latest = db.row("select_journal_bounds")
    return (latest if first is None else first - 1), latest


def _with_given(made: pa.Array, spread: Spread, given: Sequence[dict[int, bytes] | None]) -> pa.Array:
    """Replace the ids that users gave; a record has them by position."""
    texts = made.to_pylist()
    starts = np.searchsorted(spread.record, np.arange(len(given)))
    for start, of_record in zip(starts.tolist(), given, strict=True):
        for place, raw in (of_record or {}).items():
            texts[start + place] = str(UUID(bytes=raw))
    return pa.array(texts, pa.string())
