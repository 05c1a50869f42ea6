"""Rows of messages out of Redis: what a place says, joined with what never changes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tampu.engines.redis import RedisEngine
from tampu.engines.redis.queue_registry import QueueEntry
from tampu.engines.redis.rows import DEAD, DELAYED, DONE, HELD, READY, decode, read_row, result
from tampu.engines.redis.script_calls import ScriptCall, ok
from tampu.model.decoders import from_msgpack
from tampu.model.message import Body
from tampu.stores.arrow import message_rows, snapshot_rows
from tampu.stores.arrow.bulk_ids import Numbers
from tampu.stores.arrow.message_rows import Found
from tampu.stores.arrow.snapshot_rows import NONE, SnapshotRows
from tampu.stores.port import MessageQuery
from tampu.stores.redis.journal import ids

ROWS = 1 << 12
"""Messages in a batch at most; fewer where they are large."""
BYTES = 4 << 20
"""A batch ends with the message that brings it over this."""


class _Row(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """As `tampu.engines.redis.rows.Row`, with the body as it is packed."""

    rank: str
    flags: int
    created: int
    max_attempts: int
    extra: dict[str, Any] | None
    body: msgspec.Raw


_read = from_msgpack(_Row).decode


class Reader:
    """Reads the places of a piece, as many at a time as make up a batch."""

    def __init__(self, engine: RedisEngine, rooms: Sequence[QueueEntry], now: int, query: MessageQuery) -> None:
        self._engine = engine
        self._rooms = rooms
        self._now = now
        self._query = query

    def batches(self, wanted: SnapshotRows) -> Iterator[pa.RecordBatch]:
        """Of one queue."""
        start = 0
        while start < len(wanted):
            found = self._found(self._rooms[int(wanted.q[start])], wanted.part(start, start + ROWS))
            start += len(found)
            made = message_rows.batch(found, self._query.columns)
            made = message_rows.created_within(made, found.created, self._query)
            if made.num_rows:
                yield made

    def _found(self, room: QueueEntry, wanted: SnapshotRows) -> Found:
        """As many of the first as make up a batch."""
        seqs = [f"{seq:016x}" for seq in wanted.seq.tolist()]
        done = [seq for seq, state in zip(seqs, wanted.state.tolist(), strict=True) if state == DONE]
        failed = [] if wanted.failures is None else [seqs[i] for i in np.flatnonzero(wanted.failures)]
        kept, errors, failures = self._fetch(
            room, ("r", done), ("e", seqs if wanted.failures is None else []), ("f", failed)
        )
        # Last: a message that is there still was there when the others were asked for.
        (reply,) = self._engine.wire.send(
            [self._engine.registry.write.script("select_bodies", room.tag, BYTES, "".join(seqs))], safe=True
        )
        raw = ok(reply)
        missing = sum(one is None for one in raw)
        if missing:
            raise snapshot_rows.gone(missing)
        wanted, seqs = wanted.part(0, len(raw)), seqs[: len(raw)]
        found = _made(room, wanted, list(map(_read, raw)))
        if errors:
            found.errors = [errors[seq].decode() if seq in errors else None for seq in seqs]
        elif wanted.failures is not None and failures:
            counts = zip(seqs, wanted.failures.tolist(), strict=True)
            found.errors = [
                decode(failures[seq])[count - 1][4] or None if seq in failures else None for seq, count in counts
            ]
        if kept:
            found.results = [result(kept.get(seq), self._now) for seq in seqs]
        return found

    def _fetch(self, room: QueueEntry, *wanted: tuple[str, list[str]]) -> list[dict[str, bytes]]:
        """Fields of hashes of the queue; those that are there."""
        asks = [ScriptCall(room.tag, ("HMGET", f"{room.tag}:{end}", *seqs)) for end, seqs in wanted if seqs]
        replies = iter(self._engine.wire.send(asks, safe=True)) if asks else iter(())
        return [
            {seq: value for seq, value in zip(seqs, ok(next(replies)), strict=True) if value is not None}
            if seqs
            else {}
            for _, seqs in wanted
        ]


def whole(room: QueueEntry, flat: Sequence[Any], now: int) -> Found:
    """Messages as `look` tells of them: number, m, x, e, r."""
    seqs, raw, found, errors, kept = (flat[i::5] for i in range(5))
    now_in: list[list[Any]] = [decode(place) if place else [READY, 0, "", False] for place in found]
    here = SnapshotRows(
        snapshot_rows.numbers(int(seq, 16) for seq in seqs),
        np.zeros(len(seqs), np.int64),
        snapshot_rows.numbers(place[0] for place in now_in),
        snapshot_rows.numbers(place[1] for place in now_in),
        snapshot_rows.numbers((place[3] or None) if place[0] in (DELAYED, HELD) else None for place in now_in),
        snapshot_rows.numbers(place[3] if place[0] >= DONE else None for place in now_in),
        [place[4] if place[0] in (HELD, DEAD) else None for place in now_in],
    )
    made = _made(room, here, list(map(_read, raw)))
    made.errors = [None if error is None else error.decode() for error in errors]
    made.results = [result(one, now) if place[0] == DONE else None for one, place in zip(kept, now_in, strict=True)]
    return made


def _made(room: QueueEntry, here: SnapshotRows, rows: Sequence[_Row]) -> Found:
    assert here.attempts is not None
    expires = snapshot_rows.numbers(None if row.extra is None else row.extra.get("e") for row in rows)
    if here.expires is not None:
        expires = np.where(here.expires == NONE, expires, here.expires)
    return Found(
        ids=lambda: _id_column(room, here.seq, rows),
        q=here.q,
        names=dict.fromkeys(np.unique(here.q).tolist(), (room.tenant, room.queue)),
        state=here.state,
        attempts=here.attempts,
        max_attempts=np.array([row.max_attempts for row in rows], np.int64),
        created=np.array([row.created for row in rows], np.int64),
        bodies=_bodies(rows),
        run_at=here.run_at,
        ended_at=here.ended_at,
        expires=expires,
        reasons=here.reason,
    )


def _bodies(rows: Sequence[_Row]) -> pa.BinaryArray | list[Body]:
    """As they are packed; where a payload was replaced, taken apart: some fields are those of the first one."""
    if any(row.extra is not None and "p" in row.extra for row in rows):
        return [read_row(msgspec.msgpack.encode(row)).shown for row in rows]
    return pa.array([bytes(row.body) for row in rows], pa.binary())


def _id_column(room: QueueEntry, seqs: Numbers, rows: Sequence[_Row]) -> pa.Array:
    made = ids(room.ids.tail, seqs)
    own = [None if row.extra is None else row.extra.get("o") for row in rows]
    return pc.coalesce(pa.array(own, pa.string()), made) if any(own) else made
