"""Packed journal records as Arrow columns.

A record has the transitions of one verb in one commit, column by column; most columns have one value for the whole
record. So a batch repeats the values of its records, once per transition.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from tampu.engines.encoding import STATES, fingerprint
from tampu.model.decoders import from_msgpack
from tampu.model.errors import NotFound, Unavailable
from tampu.stores import columns
from tampu.stores.arrow.numbers import Numbers

ROWS = 1 << 15
"""Transitions in a batch; a single record may have more."""
RECORDS = 1 << 13
"""Records of one read transaction: a long one would delay vacuum and checkpoints."""


class Record(NamedTuple):
    first: int
    """Offset of its first transition."""
    transitions: int
    at: int
    q: int
    packed: bytes


Names = Mapping[int, tuple[str, str]]
_decode = from_msgpack(list[tuple[Any, ...]]).decode
_fingerprint = functools.lru_cache(maxsize=4096)(fingerprint)


class Unpacked(msgspec.Struct):
    """The columns of some records, one value per record."""

    verbs: Sequence[str]
    states: Sequence[int | None]
    workers: Sequence[str | None]
    attempts: Sequence[Any]
    types: Sequence[Any]
    details: Sequence[Any]
    ids: Callable[[Spread], pa.Array]


class Spread:
    """Repeats the values of records once per transition."""

    def __init__(self, lengths: Numbers) -> None:
        self.total = int(lengths.sum())
        self.record = np.repeat(np.arange(len(lengths)), lengths)
        self.within = np.arange(self.total) - np.repeat(np.cumsum(lengths) - lengths, lengths)

    def one(self, values: Sequence[Any], kind: pa.DataType) -> pa.Array:
        """A column with one value per record."""
        return _taken(pa.array(values, kind), self.record)

    def unfolded(self, given: Sequence[Any], kind: pa.DataType) -> pa.Array:
        """A column with, per record, one value or a list with one per transition."""
        if all(value is None for value in given):
            return pa.nulls(self.total, kind)
        values, places = self._places(given)
        return _taken(pa.array(values, kind), places)

    def numbers(self, given: Sequence[Any]) -> Numbers:
        """As `unfolded`, for integers."""
        values, places = self._places(given)
        return np.array(values, np.int64)[places]

    def _places(self, given: Sequence[Any]) -> tuple[list[Any], Numbers]:
        values: list[Any] = []
        widths = []
        for value in given:
            if isinstance(value, list):
                values.extend(value)
                widths.append(len(value))
            else:
                values.append(value)
                widths.append(1)
        width = np.array(widths, np.int64)
        starts = np.cumsum(width) - width
        return values, starts[self.record] + np.where(width[self.record] > 1, self.within, 0)


def decode(records: Sequence[Record]) -> list[tuple[Any, ...]]:
    """The packed columns of the records."""
    bodies = [record.packed for record in records]
    return list(zip(*_decode(b"\xdd" + len(bodies).to_bytes(4, "big") + b"".join(bodies)), strict=True))


def read(
    fetch: Callable[[int], tuple[list[Record], int, Names]],
    unpack: Callable[[Sequence[Record]], Unpacked],
    partition: str,
    after: int,
    upto: int,
    tenant: str | None,
    queues: Sequence[str] | None,
) -> Iterator[pa.RecordBatch]:
    """Batches of transitions with after < offset <= upto. ``fetch(after)`` returns records, beginning with the one that
    has the next offset, their last offset, and the names of their queues."""
    while after < upto:
        records, end, names = fetch(after)
        asked = {
            q for q, (owner, queue) in names.items() if tenant in (None, owner) and (queues is None or queue in queues)
        }
        wanted = [record for record in records if record.q in asked]
        if wanted:
            yield _batch(wanted, unpack(wanted), names, partition, after, upto)
        after = end


def bounded(records: Iterable[Record]) -> tuple[list[Record], int]:
    """The records of one batch, and their last offset."""
    taken: list[Record] = []
    end = rows = 0
    for record in records:
        taken.append(record)
        end = record.first + record.transitions - 1
        rows += record.transitions
        if rows >= ROWS:
            break
    return taken, end


def check_reach(before: int, latest: int, after: int, upto: int) -> None:
    """Raise if the range was trimmed or is beyond the end."""
    if latest < upto:
        raise Unavailable(
            f"the journal ends at {latest}, before {upto}: this is not the store the read was planned on",
            hint="the url must name the same store on the driver and on every executor",
        )
    if before > after:
        raise NotFound(
            f"transitions {after + 1} to {min(before, upto)} of the journal were trimmed",
            field="offset",
            hint="read sooner, or keep the journal longer (journal_retention)",
        )


def _batch(
    records: Sequence[Record], found: Unpacked, names: Names, partition: str, after: int, upto: int
) -> pa.RecordBatch:
    firsts, lengths, ats, queues, _ = zip(*records, strict=True)
    tenants, queue_names = zip(*(names[q] for q in queues), strict=True)
    spread = Spread(np.array(lengths, np.int64))
    text = pa.string()
    offsets = np.array(firsts, np.int64)[spread.record] + spread.within
    marks: list[Any] = [
        None if lines is None else [None if line is None else _fingerprint(line) for line in lines]
        for lines in found.details
    ]
    made = pa.RecordBatch.from_arrays(
        [
            pa.repeat(pa.scalar(partition, text), spread.total),
            pa.array(offsets),
            pa.array(np.array(ats, np.int64)[spread.record], columns.TIME),
            spread.one(tenants, text),
            spread.one(queue_names, text),
            spread.one(found.verbs, text),
            found.ids(spread),
            spread.one([None if state is None else STATES[state].value for state in found.states], text),
            spread.unfolded(found.attempts, pa.int32()),
            spread.unfolded(found.types, text),
            spread.one(found.workers, text),
            spread.unfolded(found.details, text),
            spread.unfolded(marks, text),
        ],
        schema=columns.JOURNAL,
    )
    # The first and the last record may go beyond the range.
    skip = int(np.searchsorted(offsets, after, "right"))
    return made.slice(skip, int(np.searchsorted(offsets, upto, "right")) - skip)


def _taken(values: pa.Array, places: Numbers) -> pa.Array:
    return pa.nulls(len(places), values.type) if values.null_count == len(values) else values.take(pa.array(places))
