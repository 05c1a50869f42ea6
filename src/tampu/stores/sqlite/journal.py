"""The journal of the embedded file: its bounds, and its records as Arrow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from tampu.engines.encoding import PARTITION
from tampu.engines.sqlite import SqliteEngine
from tampu.engines.sqlite.database import Db
from tampu.model.journal import Position
from tampu.stores.arrow import packed_journal
from tampu.stores.arrow.bulk_ids import BulkIds
from tampu.stores.arrow.packed_journal import Names, Record, Spread, Unpacked

_LATEST = "SELECT n FROM tampu_counter WHERE q = 0 AND kind = 1"


def bounds(engine: SqliteEngine) -> tuple[Position, Position]:
    with engine.snapshot() as db:
        before, latest = _bounds(db)
    return {PARTITION: before}, {PARTITION: latest}


def _bounds(db: Db) -> tuple[int, int]:
    latest = int(db.execute(_LATEST).fetchone()[0])
    first = db.execute("SELECT min(first) FROM tampu_journal").fetchone()[0]
    return (latest if first is None else int(first) - 1), latest


def at_time(engine: SqliteEngine, at_us: int) -> Position:
    """Scans the records: a clock that went back leaves times out of order, and everything before the position must be
    older."""
    with engine.snapshot() as db:
        found = db.execute("SELECT first FROM tampu_journal WHERE at >= ? ORDER BY first LIMIT 1", (at_us,)).fetchone()
        return {PARTITION: int(found[0]) - 1 if found else _bounds(db)[1]}


def until_time(engine: SqliteEngine, at_us: int) -> Position:
    """The position of the last transition before a time."""
    with engine.snapshot() as db:
        found = db.execute(
            "SELECT first + n - 1 FROM tampu_journal WHERE at < ? ORDER BY first DESC LIMIT 1", (at_us,)
        ).fetchone()
        return {PARTITION: int(found[0]) if found else _bounds(db)[0]}


def read(
    engine: SqliteEngine,
    partition: str,
    after: int,
    upto: int,
    tenant: str | None,
    queues: Sequence[str] | None = None,
) -> Iterator[pa.RecordBatch]:
    assert partition == PARTITION, "the file has one partition"
    ids = BulkIds(engine.registry.id)

    def fetch(after: int) -> tuple[list[Record], int, Names]:
        with engine.snapshot() as db:
            packed_journal.check_reach(*_bounds(db), after, upto)
            start = db.execute("SELECT max(first) FROM tampu_journal WHERE first <= ?", (after + 1,)).fetchone()[0]
            rows = db.execute(
                "SELECT first, n, at, q, body FROM tampu_journal WHERE first BETWEEN ? AND ? ORDER BY first LIMIT ?",
                (start, upto, packed_journal.RECORDS),
            )
            records, end = packed_journal.bounded(rows)
            return records, end, {q: engine.registry.name(db, q) for q in {record[3] for record in records}}

    def unpack(records: Sequence[Record]) -> Unpacked:
        verbs, states, workers, packed, attempts, types, details, own = packed_journal.decode(records)

        def id_column(spread: Spread) -> pa.Array:
            made = ids.column(spread.seqs(packed))
            return pc.coalesce(spread.unfolded(own, pa.string()), made) if any(own) else made

        return Unpacked(verbs, states, workers, attempts, types, details, id_column)

    return packed_journal.read(fetch, unpack, PARTITION, after, upto, tenant, queues)
