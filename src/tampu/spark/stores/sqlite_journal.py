"""The journal of the embedded file, decoded a few thousand packed records at a time into Arrow columns.

A record holds what one verb did in one commit, column by column; most columns are one value for all of it. So a batch
is made of the values of its records, each taken as often as its record is long.
"""

from __future__ import annotations

import functools
import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tampu.engines.sqlite import SqliteEngine
from tampu.engines.sqlite.codes import STATES
from tampu.engines.sqlite.journal import PARTITION, fingerprint
from tampu.model.errors import NotFound, Unavailable
from tampu.model.journal import Position
from tampu.spark import columns
from tampu.spark.stores.bulk_ids import BulkIds, Numbers

ROWS = 1 << 15
"""Transitions in a batch; one record may be more."""
RECORDS = 1 << 13
"""Looked at in one read transaction, which holds back the cleaning of SQLite's log."""

_RUN = np.dtype([("first", ">i8"), ("step", ">i8"), ("count", ">u4")])
_decode = msgspec.msgpack.Decoder(list[tuple[Any, ...]]).decode
_fingerprint = functools.lru_cache(maxsize=4096)(fingerprint)
_LATEST = "SELECT n FROM tampu_counter WHERE q = 0 AND kind = 1"


def bounds(engine: SqliteEngine) -> tuple[Position, Position]:
    with engine._snapshot() as db:
        before, latest = _bounds(db)
    return {PARTITION: before}, {PARTITION: latest}


def _bounds(db: sqlite3.Connection) -> tuple[int, int]:
    latest = int(db.execute(_LATEST).fetchone()[0])
    first = db.execute("SELECT min(first) FROM tampu_journal").fetchone()[0]
    return (latest if first is None else int(first) - 1), latest


def at_time(engine: SqliteEngine, at_us: int) -> Position:
    """Looks at record after record: a clock that went back leaves times out of order, and what comes before the
    position must all be older."""
    with engine._snapshot() as db:
        found = db.execute("SELECT first FROM tampu_journal WHERE at >= ? ORDER BY first LIMIT 1", (at_us,)).fetchone()
        return {PARTITION: int(found[0]) - 1 if found else _bounds(db)[1]}


def until_time(engine: SqliteEngine, at_us: int) -> Position:
    """The position of the last transition before a time."""
    with engine._snapshot() as db:
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
    ids = BulkIds(engine.house.id)
    while after < upto:
        with engine._snapshot() as db:
            records, end = _records(db, after, upto)
            names = {q: engine.house.name(db, q) for q in {record[3] for record in records}}
        wanted = [
            record
            for record in records
            if (tenant is None or names[record[3]][0] == tenant) and (queues is None or names[record[3]][1] in queues)
        ]
        if wanted:
            yield _batch(wanted, names, ids, after, upto)
        after = end


def _records(db: sqlite3.Connection, after: int, upto: int) -> tuple[list[tuple[int, int, int, int, bytes]], int]:
    """Records from the one that holds the next offset on, and the offset they reach to."""
    before, latest = _bounds(db)
    if latest < upto:
        raise Unavailable(
            f"the journal ends at {latest}, before {upto}: this is not the file the read was planned on",
            hint="the url must name the same file on the driver and on every executor",
        )
    if before > after:
        raise NotFound(
            f"transitions {after + 1} to {min(before, upto)} of the journal were trimmed",
            field="offset",
            hint="read sooner, or keep the journal longer (journal_retention)",
        )
    start = db.execute("SELECT max(first) FROM tampu_journal WHERE first <= ?", (after + 1,)).fetchone()[0]
    records: list[tuple[int, int, int, int, bytes]] = []
    end = rows = 0
    for record in db.execute(
        "SELECT first, n, at, q, body FROM tampu_journal WHERE first BETWEEN ? AND ? ORDER BY first LIMIT ?",
        (start, upto, RECORDS),
    ):
        records.append(record)
        end = record[0] + record[1] - 1
        rows += record[1]
        if rows >= ROWS:
            break
    return records, end


class _Values:
    """A column of which each record has one value for all its transitions, or a list with one for each."""

    def __init__(self, given: Sequence[Any]) -> None:
        self.values: list[Any] = []
        widths = []
        for value in given:
            if isinstance(value, list):
                self.values.extend(value)
                widths.append(len(value))
            else:
                self.values.append(value)
                widths.append(1)
        self._widths = np.array(widths, np.int64)

    def places(self, record: Numbers, within: Numbers) -> Numbers:
        starts = np.cumsum(self._widths) - self._widths
        return starts[record] + np.where(self._widths[record] > 1, within, 0)


def _batch(
    records: list[tuple[int, int, int, int, bytes]],
    names: dict[int, tuple[str, str]],
    ids: BulkIds,
    after: int,
    upto: int,
) -> pa.RecordBatch:
    count = len(records)
    firsts, lengths_, ats, queues, bodies = zip(*records, strict=True)
    verbs, states, workers, packed, attempts, types, details, own = zip(
        *_decode(b"\xdd" + count.to_bytes(4, "big") + b"".join(bodies)), strict=True
    )
    lengths = np.array(lengths_, np.int64)
    total = int(lengths.sum())
    record = np.repeat(np.arange(count), lengths)
    within = np.arange(total) - np.repeat(np.cumsum(lengths) - lengths, lengths)

    def spread(values: list[Any], kind: pa.DataType) -> pa.Array:
        return _taken(pa.array(values, kind), record)

    def unfolded(given: Sequence[Any], kind: pa.DataType) -> pa.Array:
        if all(value is None for value in given):
            return pa.nulls(total, kind)
        column = _Values(given)
        return _taken(pa.array(column.values, kind), column.places(record, within))

    text = pa.string()
    offsets = np.array(firsts, np.int64)[record] + within
    id_column = ids.column(_seqs(packed, record, within))
    if any(own):
        id_column = pc.coalesce(unfolded(own, text), id_column)
    marks: list[Any] = [
        None if told is None else [None if line is None else _fingerprint(line) for line in told] for told in details
    ]
    made = pa.RecordBatch.from_arrays(
        [
            pa.repeat(pa.scalar(PARTITION, text), total),
            pa.array(offsets),
            pa.array(np.array(ats, np.int64)[record], columns.TIME),
            spread([names[q][0] for q in queues], text),
            spread([names[q][1] for q in queues], text),
            spread(list(verbs), text),
            id_column,
            spread([None if state is None else STATES[state].value for state in states], text),
            unfolded(attempts, pa.int32()),
            unfolded(types, text),
            spread(list(workers), text),
            unfolded(details, text),
            unfolded(marks, text),
        ],
        schema=columns.JOURNAL,
    )
    # The first and the last record may reach beyond what was asked for.
    skip = int(np.searchsorted(offsets, after, "right"))
    return made.slice(skip, int(np.searchsorted(offsets, upto, "right")) - skip)


def _taken(values: pa.Array, places: Numbers) -> pa.Array:
    return pa.nulls(len(places), values.type) if values.null_count == len(values) else values.take(pa.array(places))


def _seqs(packed: Sequence[bytes], record: Numbers, within: Numbers) -> Numbers:
    """The message numbers of all records; see `tampu.engines.sqlite.codes.pack_seqs`."""
    even = np.array([len(raw) == _RUN.itemsize for raw in packed])
    if not even.any():
        return np.frombuffer(b"".join(packed), ">i8").astype(np.int64)
    firsts = np.zeros(len(packed), np.int64)
    steps = np.zeros(len(packed), np.int64)
    runs = np.frombuffer(b"".join(raw for raw in packed if len(raw) == _RUN.itemsize), _RUN)
    firsts[even], steps[even] = runs["first"], runs["step"]
    seqs = firsts[record] + steps[record] * within
    if not even.all():
        seqs[~even[record]] = np.frombuffer(b"".join(raw for raw in packed if len(raw) != _RUN.itemsize), ">i8")
    return seqs
