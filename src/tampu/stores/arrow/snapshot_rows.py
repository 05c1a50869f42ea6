"""States of messages when a snapshot was planned, column by column, and how a plan carries them to its readers.

A plan may have millions of messages, but their numbers are mostly consecutive and their times mostly equal: stored as
differences and compressed, a column takes a few bytes per hundred messages.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import numpy as np

from tampu.model.decoders import from_msgpack
from tampu.model.errors import NotFound, Unavailable
from tampu.stores.arrow.numbers import Numbers
from tampu.stores.port import MessageQuery

LEAST = 10_000
"""Minimum number of messages in a piece: opening the store costs as much as reading this many."""
NONE = -1
"""Stands for no time in a column of numbers."""


class SnapshotRows(msgspec.Struct):
    """Messages of any queues and states, in the order of their numbers."""

    seq: Numbers
    q: Numbers
    state: Numbers
    attempts: Numbers | None
    """None: all have ended, and the store still has the number."""
    run_at: Numbers | None = None
    ended_at: Numbers | None = None
    reason: list[str | None] | None = None
    failures: Numbers | None = None
    """Number of the latest failure, 0 for none; None: use the latest in the store."""
    expires: Numbers | None = None
    """Expiry of dead messages, because a replay may remove it."""

    def __len__(self) -> int:
        return len(self.seq)

    def part(self, start: int, stop: int) -> SnapshotRows:
        columns: list[Any] = [None if c is None else c[start:stop] for c in msgspec.structs.astuple(self)]
        return SnapshotRows(*columns)

    def sorted(self) -> SnapshotRows:
        """Sorted by number, as messages are in a table."""
        if (self.seq[1:] > self.seq[:-1]).all():
            return self
        order = np.argsort(self.seq, kind="stable")
        columns: list[Any] = [c[order] if isinstance(c, np.ndarray) else c for c in msgspec.structs.astuple(self)]
        return SnapshotRows(*columns)


class Piece(msgspec.Struct, array_like=True):
    """A part of a snapshot, for one task."""

    registry: int
    """Tail of the ids, which differs between stores."""
    now: int
    query: MessageQuery
    parts: list[bytes]
    """`SnapshotRows`, packed."""


_RUN = 8 + 4
_to_piece = from_msgpack(Piece).decode
_pack = msgspec.msgpack.encode


def same(seqs: Numbers, q: int, state: int, attempts: int | None = None, **more: Any) -> SnapshotRows:
    """Messages of one queue and state."""
    count = len(seqs)
    tried = None if attempts is None else np.full(count, attempts, np.int64)
    return SnapshotRows(seqs, np.full(count, q, np.int64), np.full(count, state, np.int64), tried, **more)


def numbers(values: Iterable[int | None], default: int = NONE) -> Numbers:
    return np.fromiter((default if value is None else value for value in values), np.int64)


def pieces(groups: Sequence[SnapshotRows], count: int, registry: int, now: int, query: MessageQuery) -> list[bytes]:
    """The plan's pieces: about ``count`` of the same size, of at least `LEAST` messages."""
    size = max(LEAST, -(-sum(map(len, groups)) // count))
    made: list[Piece] = []
    left = 0
    for group in groups:
        start = 0
        while start < len(group):
            if left <= 0:
                made.append(Piece(registry, now, query, []))
                left = size
            part = group.part(start, start + left)
            made[-1].parts.append(packed(part))
            start += len(part)
            left -= len(part)
    return [_pack(piece) for piece in made]


def opened(raw: bytes, registry: int) -> Piece:
    """Decode a piece. Raises if it was planned on another store."""
    piece = _to_piece(raw)
    if piece.registry != registry:
        raise Unavailable(
            "this is not the store the read was planned on",
            hint="the url must name the same store on the driver and on every executor",
        )
    return piece


def unpacked(raw: bytes) -> SnapshotRows:
    columns: list[Any] = [
        _column(column) if isinstance(column, bytes) else column
        for column in msgspec.msgpack.decode(zlib.decompress(raw))
    ]
    return SnapshotRows(*columns)


def packed(places: SnapshotRows) -> bytes:
    columns = [_runs(c) if isinstance(c, np.ndarray) else c for c in msgspec.structs.astuple(places)]
    return zlib.compress(_pack(columns), 1)


def _runs(column: Numbers) -> bytes:
    """Run-length encoding of the differences: the differences, then how often each repeats."""
    steps = np.diff(column, prepend=0)
    last = np.append(steps[1:] != steps[:-1], np.ones(min(len(steps), 1), np.bool_))
    ends = np.flatnonzero(last)
    return steps[ends].tobytes() + np.diff(ends, prepend=-1).astype(np.int32).tobytes()


def _column(raw: bytes) -> Numbers:
    count = len(raw) // _RUN
    times = np.frombuffer(raw, np.int32, offset=count * 8)
    column: Numbers = np.cumsum(np.repeat(np.frombuffer(raw, np.int64, count), times))
    return column


def within(at: int | None, query: MessageQuery) -> bool:
    """True if it ended in the time range of the query, or the query has none."""
    if query.ended_from is None and query.ended_to is None:
        return True
    return (
        at is not None
        and (query.ended_from is None or at >= query.ended_from)
        and (query.ended_to is None or at < query.ended_to)
    )


def gone(count: int) -> NotFound:
    return NotFound(
        f"{count} or more messages were removed after this read was planned",
        field="id",
        hint="retention or a purge removed them; read again, or raise the queue's retention",
    )
