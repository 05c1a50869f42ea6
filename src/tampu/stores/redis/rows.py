"""Rows of messages from Redis: the status in the snapshot, joined with what never changes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tampu.engines.redis import RedisEngine
from tampu.engines.redis.connection.script_calls import ScriptCall, ok
from tampu.engines.redis.queue_registry import QueueEntry
from tampu.engines.redis.rows import DONE, Row, Status, failures, read_row, read_status, result
from tampu.model.decoders import from_msgpack
from tampu.model.message import Body
from tampu.stores.arrow import message_rows, snapshot_rows
from tampu.stores.arrow.message_rows import Found
from tampu.stores.arrow.numbers import Numbers
from tampu.stores.arrow.snapshot_rows import NONE, SnapshotRows
from tampu.stores.port import MessageQuery
from tampu.stores.redis.journal import column

ROWS = 1 << 12
"""Maximum number of messages in a batch; fewer if they are large."""
BYTES = 4 << 20
"""A batch ends with the message that reaches this size."""


class _Row(Row, frozen=True, array_like=True, gc=False):
    """With the body still packed."""

    body: msgspec.Raw  # type: ignore[assignment]  # is read by `read_row` if it is needed


_read = from_msgpack(_Row).decode


class Reader:
    """Reads the messages of a piece, one batch at a time."""

    def __init__(self, engine: RedisEngine, entries: Sequence[QueueEntry], now: int, query: MessageQuery) -> None:
        self._engine = engine
        self._entries = entries
        self._now = now
        self._query = query

    def batches(self, wanted: SnapshotRows) -> Iterator[pa.RecordBatch]:
        """Batches of messages of one queue."""
        start = 0
        while start < len(wanted):
            found = self._found(self._entries[int(wanted.q[start])], wanted.part(start, start + ROWS))
            start += len(found.rows)
            made = message_rows.queried(found, self._query)
            if made.num_rows:
                yield made

    def _found(self, entry: QueueEntry, wanted: SnapshotRows) -> Found:
        """The first messages, up to the size of a batch."""
        seqs = [f"{seq:016x}" for seq in wanted.seq.tolist()]
        done = [seq for seq, state in zip(seqs, wanted.state.tolist(), strict=True) if state == DONE]
        failed = [] if wanted.failures is None else [seqs[i] for i in np.flatnonzero(wanted.failures)]
        kept, errors, failed_attempts = self._fetch(
            entry, ("r", done), ("e", seqs if wanted.failures is None else []), ("f", failed)
        )
        # Bodies last: a message that is still there was there when the other fields were read.
        (reply,) = self._engine.wire.send(
            [self._engine.registry.write.script("select_bodies", entry.tag, BYTES, "".join(seqs))], safe=True
        )
        raw = ok(reply)
        missing = sum(one is None for one in raw)
        if missing:
            raise snapshot_rows.gone(missing)
        wanted, seqs = wanted.part(0, len(raw)), seqs[: len(raw)]
        found = _made(entry, wanted, list(map(_read, raw)))
        if errors:
            found.errors = [errors[seq].decode() if seq in errors else None for seq in seqs]
        elif wanted.failures is not None and failed_attempts:
            counts = zip(seqs, wanted.failures.tolist(), strict=True)
            found.errors = [
                failures(failed_attempts[seq])[count - 1].error if seq in failed_attempts else None
                for seq, count in counts
            ]
        if kept:
            found.results = [result(kept.get(seq), self._now) for seq in seqs]
        return found

    def _fetch(self, entry: QueueEntry, *wanted: tuple[str, list[str]]) -> list[dict[str, bytes]]:
        """Fields of hashes of the queue, without missing ones."""
        calls = [ScriptCall(entry.tag, ("HMGET", f"{entry.tag}:{end}", *seqs)) for end, seqs in wanted if seqs]
        replies = iter(self._engine.wire.send(calls, safe=True)) if calls else iter(())
        return [
            {seq: value for seq, value in zip(seqs, ok(next(replies)), strict=True) if value is not None}
            if seqs
            else {}
            for _, seqs in wanted
        ]


def whole(entry: QueueEntry, flat: Sequence[Any], now: int) -> Found:
    """Messages from the reply of `select_messages.lua`: number, m, x, e, r."""
    seqs, raw, packed, errors, kept = (flat[i::5] for i in range(5))
    found = list(map(read_status, packed))
    made = _made(entry, statuses(0, [int(seq, 16) for seq in seqs], found), list(map(_read, raw)))
    made.errors = [None if error is None else error.decode() for error in errors]
    made.results = [result(one, now) if status.state == DONE else None for one, status in zip(kept, found, strict=True)]
    return made


def statuses(queue: int, seqs: Sequence[int], found: Sequence[Status]) -> SnapshotRows:
    """The status of messages of one queue, as columns."""
    return SnapshotRows(
        snapshot_rows.numbers(seqs),
        np.full(len(seqs), queue, np.int64),
        snapshot_rows.numbers(status.state for status in found),
        snapshot_rows.numbers(status.attempts for status in found),
        snapshot_rows.numbers(status.run_at for status in found),
        snapshot_rows.numbers(status.ended_at for status in found),
        [status.reason for status in found],
    )


def _made(entry: QueueEntry, here: SnapshotRows, rows: Sequence[_Row]) -> Found:
    assert here.attempts is not None
    expires = snapshot_rows.numbers(None if row.extra is None else row.extra.get("e") for row in rows)
    if here.expires is not None:
        expires = np.where(here.expires == NONE, expires, here.expires)
    return Found(
        here,
        ids=lambda: _id_column(entry, here.seq, rows),
        names=dict.fromkeys(np.unique(here.q).tolist(), (entry.tenant, entry.queue)),
        attempts=here.attempts,
        max_attempts=np.array([row.max_attempts for row in rows], np.int64),
        created=np.array([row.created for row in rows], np.int64),
        expires=expires,
        bodies=_bodies(rows),
    )


def _bodies(rows: Sequence[_Row]) -> pa.BinaryArray | list[Body]:
    """The packed bodies. If a payload was replaced, decoded ones, because some fields are those of the first body."""
    if any(row.extra is not None and "p" in row.extra for row in rows):
        return [read_row(msgspec.msgpack.encode(row)).shown for row in rows]
    return pa.array([bytes(row.body) for row in rows], pa.binary())


def _id_column(entry: QueueEntry, seqs: Numbers, rows: Sequence[_Row]) -> pa.Array:
    made = column(entry.ids, seqs)
    own = [None if row.extra is None else row.extra.get("o") for row in rows]
    return pc.coalesce(pa.array(own, pa.string()), made) if any(own) else made
