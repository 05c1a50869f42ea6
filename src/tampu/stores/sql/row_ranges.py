"""Reads ranges of adjacent messages from PostgreSQL as Arrow: the server aggregates their columns, range by range.

A row of the COPY is a whole range, and each of its fields is a column, so no work is done per message. For a range with
large bodies, only the sizes come first; then the bodies, in parts of bounded size.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from tampu.engines.postgres.database import Db, statements
from tampu.engines.sql.read_pool import ReadPool
from tampu.stores.arrow.numbers import Numbers, cuts
from tampu.stores.sql.copy_format import BEGINNING

RANGE_SIZE = 1 << 10
"""Wanted messages in a range; a few times as many others may lie between them. With ranges eight times as long the
server takes 1.5 times as long, because it allocates the memory of each."""
SMALL = 2_000
"""Largest body in bytes that PostgreSQL keeps in its row; larger ones are stored elsewhere."""
BYTES = 4 << 20
"""Approximate size of the bodies that come at once; a single one may be larger."""
_ALL = (1 << 31) - 1
_LENGTH = struct.Struct(">i").unpack_from
_PAIR = np.dtype([("seq", ">i8"), ("value", ">i8")])
_OWN = np.dtype([("seq", ">i8"), ("id", "V16")])
_SIZE = np.dtype([("body", ">i4"), ("max_attempts", ">i4")])

Range = tuple[int, int]


class _RowRange(msgspec.Struct):
    """A row of the COPY."""

    seq: Numbers
    size: Numbers
    fields: Sequence[memoryview]

    def whole(self) -> bool:
        """True if it has all bodies."""
        return len(self.fields[-1]) == int(self.size.sum())

    def cuts(self) -> Iterator[Range]:
        """Parts of it whose bodies have at most `BYTES`."""
        for start, stop in cuts(self.size, BYTES):
            yield int(self.seq[start]), int(self.seq[stop - 1])

    def batch(self) -> pa.RecordBatch:
        _, created, sizes, expires, ahead, own, _ = self.fields
        most = np.frombuffer(sizes, _SIZE)["max_attempts"].astype(np.int32)
        return pa.record_batch(
            {
                "seq": pa.array(self.seq),
                "created": pa.array(np.frombuffer(created, ">i8").astype(np.int64)),
                "max_attempts": pa.array(most),
                "expires": self._some(expires),
                "ahead": self._some(ahead),
                "id": self._own(own),
                "body": self._bodies() if self.whole() else pa.nulls(len(self.seq), pa.binary()),
            }
        )

    def _bodies(self) -> pa.Array:
        offsets = np.zeros(len(self.seq) + 1, np.int32)
        np.cumsum(self.size, out=offsets[1:])
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(self.fields[-1])]
        return pa.Array.from_buffers(pa.binary(), len(self.seq), buffers)

    def _some(self, raw: memoryview) -> pa.Array:
        if not raw:
            return pa.nulls(len(self.seq), pa.int64())
        pairs = np.frombuffer(raw, _PAIR)
        values, missing = np.zeros(len(self.seq), np.int64), np.ones(len(self.seq), np.bool_)
        places = np.searchsorted(self.seq, pairs["seq"])
        values[places], missing[places] = pairs["value"], False
        return pa.array(values, mask=missing)

    def _own(self, raw: memoryview) -> pa.Array:
        if not raw:
            return pa.nulls(len(self.seq), pa.binary(16))
        pairs = np.frombuffer(raw, _OWN)
        values, there = np.zeros(len(self.seq), "V16"), np.zeros(len(self.seq), np.bool_)
        places = np.searchsorted(self.seq, pairs["seq"])
        values[places], there[places] = pairs["id"], True
        valid = None if there.all() else pa.array(there).buffers()[1]
        return pa.Array.from_buffers(pa.binary(16), len(self.seq), [valid, pa.py_buffer(values)])


class RowRanges:
    def __init__(self, readers: ReadPool, schema: str) -> None:
        self._readers = readers
        self._text = statements(schema)["snapshot_messages"]

    def messages(self, wanted: Numbers, *, bodies: bool) -> Iterator[pa.RecordBatch]:
        """See `tampu.stores.sql.store.SqlStore.walk`."""
        starts = range(0, len(wanted), RANGE_SIZE)
        ranges = [(int(wanted[at]), int(wanted[min(at + RANGE_SIZE, len(wanted)) - 1])) for at in starts]
        found = self._read(ranges, SMALL if bodies else -1)
        for small, group in itertools.groupby(found, lambda row_range: row_range.whole() or not bodies):
            if small:
                yield _joined(list(group)).batch()
                continue
            for cut in (cut for row_range in group for cut in row_range.cuts()):
                for part in self._read([cut], _ALL):
                    yield part.batch()

    def _read(self, ranges: Sequence[Range], most: int) -> list[_RowRange]:
        text = self._text
        for name, values in ((b"$1", [a for a, _ in ranges]), (b"$2", [b for _, b in ranges]), (b"$3", [most])):
            text = text.replace(name, b",".join(b"%d" % value for value in values))

        def work(db: Any) -> list[_RowRange]:
            assert isinstance(db, Db)
            if not db.ours:  # behind a pooler, planner settings must be set in each transaction
                with db.together():
                    db.command(b"BEGIN READ ONLY")
                    db.send("configure_session", True)
            with db.connection.cursor() as cursor, cursor.copy(b"COPY (%s) TO STDOUT (FORMAT binary)" % text) as copy:
                found = [_parse_row(memoryview(row)) for row in copy]
            if not db.ours:
                db.command(b"COMMIT")
            return [row_range for row_range in found if row_range is not None]

        return self._readers.run(work)


def _parse_row(row: memoryview) -> _RowRange | None:
    """Parse a row of the COPY; None for the end marker."""
    at = len(BEGINNING) if row[: len(BEGINNING)] == BEGINNING else 0
    (count,) = struct.unpack_from(">h", row, at)
    at += 2
    fields = []
    for _ in range(count):
        (length,) = _LENGTH(row, at)
        at += 4
        fields.append(row[at : at + max(length, 0)])
        at += max(length, 0)
    return _row_range(fields) if fields else None


def _joined(row_ranges: list[_RowRange]) -> _RowRange:
    """Merge consecutive ranges."""
    if len(row_ranges) == 1:
        return row_ranges[0]
    return _row_range([memoryview(b"".join(parts)) for parts in zip(*(one.fields for one in row_ranges), strict=True)])


def _row_range(fields: Sequence[memoryview]) -> _RowRange:
    seqs, _, sizes, *_ = fields
    seq: Numbers = np.frombuffer(seqs, ">i8").astype(np.int64)
    return _RowRange(seq, np.frombuffer(sizes, _SIZE)["body"].astype(np.int64), fields)
