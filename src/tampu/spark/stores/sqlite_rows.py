"""Rows of messages out of the embedded file: what a place (an index row) says, joined with what never changes."""

from __future__ import annotations

import contextlib
import gc
import operator
import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tampu.engines.sqlite import SqliteEngine
from tampu.engines.sqlite.codes import DONE, STATES, as_json
from tampu.model.errors import NotFound
from tampu.model.message import Body
from tampu.spark import columns
from tampu.spark.stores import bulk_bodies
from tampu.spark.stores.bulk_ids import BulkIds, Numbers, own_column

ROWS = 1 << 13
"""Messages in a batch."""
_AT_ONCE = ROWS * 3 // 2
"""Rather than a small batch at the end, one that is larger."""
BYTES = 1 << 25
"""A batch ends with the message that brings its bodies over this."""
_SPARSE = 2
"""A range is walked over when it holds at most so many times the messages that are wanted; else each is looked up."""
_FETCH = 1024
_BODY = operator.itemgetter(-1)
NONE = -1
"""No time, in a column of numbers."""

_MESSAGE = "t.seq, t.created, t.max_attempts, t.expires, t.id, t.body"
_decode = msgspec.msgpack.Decoder(list[Body]).decode
_to_json = msgspec.json.Encoder(enc_hook=str).encode
_STATE_NAMES = pa.array([state.value for state in STATES], pa.string())


class Places(msgspec.Struct):
    """Where messages were, column by column, in the order of their numbers."""

    seq: Numbers
    q: Numbers
    state: Numbers
    attempts: Numbers | None
    """None: all have ended, and `tampu_ended` says it."""
    run_at: Numbers | None = None
    ended_at: Numbers | None = None
    reason: list[str | None] | None = None
    failures: Numbers | None = None
    """How many attempts had failed; None: all that are known."""
    expires: Numbers | None = None
    """When it was dead: a replay may take the expiry of the message away."""

    def __len__(self) -> int:
        return len(self.seq)

    def part(self, start: int, stop: int) -> Places:
        columns_: list[Any] = [None if c is None else c[start:stop] for c in msgspec.structs.astuple(self)]
        return Places(*columns_)


def batches(
    engine: SqliteEngine, places: Places, now: int, created_from: int | None = None, created_to: int | None = None
) -> Iterator[pa.RecordBatch]:
    """The rows of these places, each batch read in a transaction of its own."""
    maker = _Maker(engine, now)
    start = 0
    while start < len(places):
        with _no_collection():
            with engine._snapshot() as db:
                found = maker.find(
                    db, places.part(start, start + (ROWS if len(places) - start > _AT_ONCE else _AT_ONCE))
                )
            batch = maker.batch(found)
        start += len(found.places)
        if created_from is not None or created_to is not None:
            within = np.ones(len(found.places), np.bool_)
            created = np.array(found.created, np.int64)
            if created_from is not None:
                within &= created >= created_from
            if created_to is not None:
                within &= created < created_to
            batch = batch.filter(pa.array(within))
        if batch.num_rows:
            yield batch


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Thousands of rows and no cycle among them: looking for cycles would take a third of the time."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


class Numbered:
    """Messages by their numbers, which are in order; a range of the tables is walked over where that is less work.

    Walking is about twice as fast as looking up a row each.
    """

    def __init__(self, db: sqlite3.Connection, seqs: Numbers) -> None:
        self._db = db
        self.seqs: list[int] = seqs.tolist()
        most = _SPARSE * len(self.seqs)
        self._range = (self.seqs[0], self.seqs[-1])
        (there,) = db.execute(
            "SELECT count(*) FROM (SELECT 1 FROM tampu_message WHERE seq BETWEEN ? AND ? LIMIT ?)",
            (*self._range, most + 1),
        ).fetchone()
        self.walks: bool = there <= most

    def rows(self, table: str, what: str, where: str = "1") -> sqlite3.Cursor:
        """Rows in the order of the numbers; there may be rows of other messages among them."""
        if self.walks:
            sql = f"SELECT {what} FROM {table} t WHERE t.seq BETWEEN ? AND ? AND {where}"  # noqa: S608 - constants
            return self._db.execute(sql, self._range)
        sql = f"SELECT {what} FROM json_each(?) j CROSS JOIN {table} t ON t.seq = j.value WHERE {where}"  # noqa: S608 - constants
        return self._db.execute(sql, (as_json(self.seqs),))


def gone(count: int) -> NotFound:
    return NotFound(
        f"{count} or more messages were removed after this read was planned",
        field="id",
        hint="retention or a purge took them; read again, or raise the queue's retention",
    )


def _bounded(cursor: sqlite3.Cursor) -> tuple[list[Any], bool]:
    """Rows until their bodies, the last column, are over the size of a batch; and whether these are all."""
    rows: list[Any] = []
    size, step = 0, 16
    while some := cursor.fetchmany(step):
        rows += some
        size += sum(map(len, map(_BODY, some)))
        if size > BYTES:
            return rows, False
        step = max(1, min(_FETCH, (BYTES - size) * len(rows) // max(1, size)))
    return rows, True


class _Found(msgspec.Struct):
    places: Places
    created: Sequence[int]
    max_attempts: Sequence[int]
    expires: Sequence[int | None]
    own: Sequence[bytes | None]
    bodies: Sequence[bytes]
    errors: dict[int, str | None]
    results: dict[int, bytes]
    names: dict[int, tuple[str, str]]


class _Maker:
    def __init__(self, engine: SqliteEngine, now: int) -> None:
        self._house = engine.house
        self._ids = BulkIds(engine.house.id)
        self._now = now

    def find(self, db: sqlite3.Connection, places: Places) -> _Found:
        """As many of these as make up a batch, and what the file says of them."""
        numbered = Numbered(db, places.seq)
        rows = self._bodies(numbered)
        seqs = [row[0] for row in rows]
        if len(seqs) < len(places):
            places = places.part(0, len(seqs))
        _, created, max_attempts, expires, own, bodies = zip(*rows, strict=True)
        if places.attempts is None:
            # Message and end are removed together, so the end is there. Most messages needed one attempt.
            rest = dict(numbered.rows("tampu_ended", "t.seq, t.attempts", "t.attempts <> 1"))
            attempts = np.ones(len(seqs), np.int64)
            if rest:
                attempts = np.array([rest.get(seq, 1) for seq in seqs], np.int64)
            places = msgspec.structs.replace(places, attempts=attempts)
        return _Found(
            places, created, max_attempts, expires, own, bodies,
            self._errors(db, numbered, places), self._results(numbered, places),
            {q: self._house.name(db, q) for q in np.unique(places.q).tolist()},
        )  # fmt: skip

    def _bodies(self, numbered: Numbered) -> list[Any]:
        """What never changes of these messages, of as many as make up a batch."""
        rows, whole = _bounded(numbered.rows("tampu_message", _MESSAGE))
        if len(rows) != len(numbered.seqs) or rows[-1][0] != numbered.seqs[-1]:
            if not whole and numbered.walks:
                # Large messages of others may lie in between, and nothing else.
                numbered.walks = False
                rows, whole = _bounded(numbered.rows("tampu_message", _MESSAGE))
            wanted = frozenset(numbered.seqs)
            rows = [row for row in rows if row[0] in wanted]
        count = len(numbered.seqs) if whole else len(rows)
        if [row[0] for row in rows] != numbered.seqs[:count]:
            raise gone(max(1, count - len(rows)))
        return rows

    def _errors(self, db: sqlite3.Connection, numbered: Numbered, places: Places) -> dict[int, str | None]:
        """The error of the latest failed attempt as of the plan, for each message that had one."""
        if places.failures is None:
            latest: dict[int, tuple[int, str | None]] = {}
            for seq, no, error in numbered.rows("tampu_failure", "t.seq, t.no, t.error"):
                if seq not in latest or no > latest[seq][0]:
                    latest[seq] = (no, error)
            return {seq: error for seq, (_, error) in latest.items()}
        failed = np.flatnonzero(places.failures)
        return {
            int(places.seq[i]): row[0]
            for i in failed
            for row in db.execute(
                "SELECT error FROM tampu_failure WHERE seq = ? AND no = ?",
                (int(places.seq[i]), int(places.failures[i])),
            )
        }

    def _results(self, numbered: Numbered, places: Places) -> dict[int, bytes]:
        done = places.state == DONE
        found = numbered.rows("tampu_result", "t.seq, t.until, t.body").fetchall() if done.any() else []
        wanted = set(places.seq[done].tolist()) if found else set()
        return {seq: body for seq, until, body in found if until > self._now and seq in wanted}

    def batch(self, found: _Found) -> pa.RecordBatch:
        places, names, text = found.places, found.names, pa.string()
        count = len(places)
        plain = bulk_bodies.unpack(found.bodies)
        bodies = [] if plain else _decode(b"\xdd" + count.to_bytes(4, "big") + b"".join(found.bodies))
        if plain is None:
            plain = bulk_bodies.Plain(
                pa.array([body.type for body in bodies], text),
                pa.array([body.payload for body in bodies], pa.binary()),
                pa.array([body.content_type for body in bodies], text),
            )
        seqs = places.seq.tolist() if found.errors or found.results else []
        queues, place = np.unique(places.q, return_inverse=True)

        def field(name: str, kind: pa.DataType) -> pa.Array:
            """One of the fields that few messages have."""
            values = list(map(operator.attrgetter(name), bodies))
            return pa.array(values, kind) if any(value is not None for value in values) else pa.nulls(count, kind)

        def pairs(name: str) -> pa.Array:
            values = [list(value.items()) if value else None for value in map(operator.attrgetter(name), bodies)]
            return pa.array(values, columns.PAIRS) if any(values) else pa.nulls(count, columns.PAIRS)

        id_column = self._ids.column(places.seq)
        if any(found.own):
            there, own = own_column(found.own)
            id_column = own if there.all() else pc.if_else(pa.array(there), own, id_column)
        results = [
            None if raw is None else _to_json(msgspec.msgpack.decode(raw)).decode()
            for raw in map(found.results.get, seqs)
        ] if found.results else None  # fmt: skip
        return pa.RecordBatch.from_arrays(
            [
                id_column,
                pa.array([names[q][0] for q in queues.tolist()], text).take(pa.array(place)),
                pa.array([names[q][1] for q in queues.tolist()], text).take(pa.array(place)),
                _STATE_NAMES.take(pa.array(places.state)),
                plain.type,
                plain.payload,
                plain.content_type,
                pairs("headers"),
                pairs("labels"),
                pa.array([body.priority for body in bodies] if bodies else np.zeros(count, np.int64), pa.int64()),
                pa.array(places.attempts, pa.int32()),
                pa.array(found.max_attempts, pa.int32()),
                pa.array(found.created, pa.int64()).cast(columns.TIME),
                _times(places.run_at, count),
                field("deadline", pa.int64()).cast(columns.TIME),
                self._expires(found),
                _times(places.ended_at, count),
                field("key", text),
                field("idempotency_key", text),
                field("correlation_id", text),
                field("causation_id", text),
                field("parent_id", text),
                field("group", text),
                field("source", text),
                pa.nulls(count, text) if places.reason is None else pa.array(places.reason, text),
                pa.array(list(map(found.errors.get, seqs)), text) if found.errors else pa.nulls(count, text),
                pa.nulls(count, text) if results is None else pa.array(results, text),
            ],
            schema=columns.MESSAGES,
        )  # fmt: skip

    def _expires(self, found: _Found) -> pa.Array:
        now = pa.array(found.expires, pa.int64()).cast(columns.TIME)
        if found.places.expires is None:
            return now
        return pc.coalesce(_times(found.places.expires, len(found.places)), now)


def _times(values: Numbers | None, count: int) -> pa.Array:
    if values is None:
        return pa.nulls(count, columns.TIME)
    return pa.array(values, pa.int64(), mask=values == NONE).cast(columns.TIME)
