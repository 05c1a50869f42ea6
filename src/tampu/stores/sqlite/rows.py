"""Rows of messages from the embedded file: the index row in the snapshot, joined with what never changes."""

from __future__ import annotations

import contextlib
import functools
import gc
import operator
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tampu.engines.encoding import DONE, as_json
from tampu.engines.sqlite import SqliteEngine
from tampu.engines.sqlite.database import Db
from tampu.model.decoders import from_msgpack
from tampu.model.errors import NotFound
from tampu.model.message import Body
from tampu.stores import columns
from tampu.stores.arrow import bulk_bodies
from tampu.stores.arrow.bulk_ids import BulkIds, Numbers, own_column
from tampu.stores.port import MessageQuery

ROWS = 1 << 13
"""Messages in a batch."""
_AT_ONCE = ROWS * 3 // 2
"""Maximum size of the last batch, to avoid a small one at the end."""
BYTES = 1 << 25
"""A batch ends with the message whose body reaches this size."""
_SPARSE = 2
"""A range is scanned if it has at most this many times the wanted messages; else each message is looked up."""
_FETCH = 1024
_BODY = operator.itemgetter(-1)
NONE = -1
"""Stands for no time in a column of numbers."""

_MESSAGE = "t.seq, t.created, t.max_attempts, t.expires, t.id, "
_IN_BODY = {
    name: kind
    for name, kind in zip(columns.MESSAGES.names, columns.MESSAGES.types, strict=True)
    if name in Body.__struct_fields__
}
"""Columns in the body."""
_decode = from_msgpack(list[Body]).decode
_to_json = msgspec.json.Encoder(enc_hook=str).encode


class Places(msgspec.Struct):
    """Index rows of messages at the time of the plan, column by column, in the order of their numbers."""

    seq: Numbers
    q: Numbers
    state: Numbers
    attempts: Numbers | None
    """None: all have ended, and `tampu_ended` has the number."""
    run_at: Numbers | None = None
    ended_at: Numbers | None = None
    reason: list[str | None] | None = None
    failures: Numbers | None = None
    """Number of failed attempts; None: use the latest failure in the file."""
    expires: Numbers | None = None
    """Expiry of dead messages, because a replay may remove it."""

    def __len__(self) -> int:
        return len(self.seq)

    def part(self, start: int, stop: int) -> Places:
        columns_: list[Any] = [None if c is None else c[start:stop] for c in msgspec.structs.astuple(self)]
        return Places(*columns_)


def batches(engine: SqliteEngine, places: Places, now: int, query: MessageQuery) -> Iterator[pa.RecordBatch]:
    """The messages of these index rows that match the query, one transaction per batch."""
    maker = _Maker(engine, now, query.columns)
    created_from, created_to = query.created_from, query.created_to
    start = 0
    while start < len(places):
        with _no_collection():
            with engine.snapshot() as db:
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
    """Garbage collection off: searching thousands of rows for cycles, which they do not have, takes a third of the
    time."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


class Numbered:
    """Messages by number, in order. Scans a range of the table where that is less work than looking up each row.

    Scanning is about twice as fast per row.
    """

    def __init__(self, db: Db, seqs: Numbers) -> None:
        self._db = db
        self.seqs: list[int] = seqs.tolist()
        most = _SPARSE * len(self.seqs)
        self._range = (self.seqs[0], self.seqs[-1])
        (there,) = db.execute(
            "SELECT count(*) FROM (SELECT 1 FROM tampu_message WHERE seq BETWEEN ? AND ? LIMIT ?)",
            (*self._range, most + 1),
        ).fetchone()
        self.scans: bool = there <= most

    def rows(self, table: str, what: str, where: str = "1") -> sqlite3.Cursor:
        """Rows in the order of the numbers; may include rows of other messages."""
        if self.scans:
            sql = f"SELECT {what} FROM {table} t WHERE t.seq BETWEEN ? AND ? AND {where}"  # noqa: S608 - constants
            return self._db.execute(sql, self._range)
        sql = f"SELECT {what} FROM json_each(?) j CROSS JOIN {table} t ON t.seq = j.value WHERE {where}"  # noqa: S608 - constants
        return self._db.execute(sql, (as_json(self.seqs),))


def gone(count: int) -> NotFound:
    return NotFound(
        f"{count} or more messages were removed after this read was planned",
        field="id",
        hint="retention or a purge removed them; read again, or raise the queue's retention",
    )


def _bounded(cursor: sqlite3.Cursor) -> tuple[list[Any], bool]:
    """Rows until their bodies, the last column, reach the size of a batch; and whether these are all rows."""
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
    def __init__(self, engine: SqliteEngine, now: int, wanted: Sequence[str]) -> None:
        self._schema = columns.chosen(columns.MESSAGES, wanted)
        self._message = _MESSAGE + ("x''" if _IN_BODY.keys().isdisjoint(wanted) else "t.body")
        self._registry = engine.registry
        self._ids = BulkIds(engine.registry.id)
        self._now = now

    def find(self, db: Db, places: Places) -> _Found:
        """The first of these messages, up to the size of a batch, with their data."""
        numbered = Numbered(db, places.seq)
        rows = self._bodies(numbered)
        seqs = [row[0] for row in rows]
        if len(seqs) < len(places):
            places = places.part(0, len(seqs))
        _, created, max_attempts, expires, own, bodies = zip(*rows, strict=True)
        if places.attempts is None:
            # Message and ended row are removed together, so the row exists. Most messages needed one attempt.
            rest = dict(numbered.rows("tampu_ended", "t.seq, t.attempts", "t.attempts <> 1"))
            attempts = np.ones(len(seqs), np.int64)
            if rest:
                attempts = np.array([rest.get(seq, 1) for seq in seqs], np.int64)
            places = msgspec.structs.replace(places, attempts=attempts)
        return _Found(
            places, created, max_attempts, expires, own, bodies,
            self._errors(db, numbered, places), self._results(numbered, places),
            {q: self._registry.name(db, q) for q in np.unique(places.q).tolist()},
        )  # fmt: skip

    def _bodies(self, numbered: Numbered) -> list[Any]:
        """The constant columns of the first messages, up to the size of a batch."""
        rows, whole = _bounded(numbered.rows("tampu_message", self._message))
        if len(rows) != len(numbered.seqs) or rows[-1][0] != numbered.seqs[-1]:
            if not whole and numbered.scans:
                # Perhaps only large messages in between were read: look up each instead.
                numbered.scans = False
                rows, whole = _bounded(numbered.rows("tampu_message", self._message))
            wanted = frozenset(numbered.seqs)
            rows = [row for row in rows if row[0] in wanted]
        count = len(numbered.seqs) if whole else len(rows)
        if [row[0] for row in rows] != numbered.seqs[:count]:
            raise gone(max(1, count - len(rows)))
        return rows

    def _errors(self, db: Db, numbered: Numbered, places: Places) -> dict[int, str | None]:
        """The latest error of each message at the time of the plan."""
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
        makers = self._place_makers(found) | self._body_makers(found.bodies)
        return pa.RecordBatch.from_arrays([makers[name]() for name in self._schema.names], schema=self._schema)

    def _place_makers(self, found: _Found) -> dict[str, Callable[[], pa.Array]]:
        """Makers of the columns that need no body."""
        places, text = found.places, pa.string()
        count = len(places)
        seqs = places.seq.tolist() if found.errors or found.results else []
        queues, place = np.unique(places.q, return_inverse=True)

        def name(part: int) -> pa.Array:
            return pa.array([found.names[q][part] for q in queues.tolist()], text).take(pa.array(place))

        def results() -> list[str | None]:
            given = map(found.results.get, seqs)
            return [None if raw is None else _to_json(msgspec.msgpack.decode(raw)).decode() for raw in given]

        return {
            "id": lambda: self._id(found),
            "tenant": lambda: name(0),
            "queue": lambda: name(1),
            "state": lambda: columns.state_names().take(pa.array(places.state)),
            "attempts": lambda: pa.array(places.attempts, pa.int32()),
            "max_attempts": lambda: pa.array(found.max_attempts, pa.int32()),
            "created_at": lambda: pa.array(found.created, pa.int64()).cast(columns.TIME),
            "run_at": lambda: _times(places.run_at, count),
            "expires_at": lambda: self._expires(found),
            "ended_at": lambda: _times(places.ended_at, count),
            "reason": lambda: pa.nulls(count, text) if places.reason is None else pa.array(places.reason, text),
            "last_error": lambda: (
                pa.array(list(map(found.errors.get, seqs)), text) if found.errors else pa.nulls(count, text)
            ),
            "result": lambda: pa.array(results(), text) if found.results else pa.nulls(count, text),
        }

    def _body_makers(self, packed: Sequence[bytes]) -> dict[str, Callable[[], pa.Array]]:
        """Makers of the columns in the body. Simple bodies are unpacked all at once."""
        if _IN_BODY.keys().isdisjoint(self._schema.names):
            return {}
        count = len(packed)
        plain = bulk_bodies.unpack(packed)
        if plain is not None:
            return {name: functools.partial(pa.nulls, count, kind) for name, kind in _IN_BODY.items()} | {
                "type": lambda: plain.type,
                "payload": lambda: plain.payload,
                "content_type": lambda: plain.content_type,
                "priority": lambda: pa.array(np.zeros(count, np.int64)),
            }
        bodies = _decode(b"\xdd" + count.to_bytes(4, "big") + b"".join(packed))

        def field(name: str, kind: pa.DataType) -> pa.Array:
            values = list(map(operator.attrgetter(name), bodies))
            if kind == columns.PAIRS:
                values = [list(value.items()) if value else None for value in values]
            return pa.array(values, pa.int64()).cast(kind) if kind == columns.TIME else pa.array(values, kind)

        return {name: functools.partial(field, name, kind) for name, kind in _IN_BODY.items()}

    def _id(self, found: _Found) -> pa.Array:
        made = self._ids.column(found.places.seq)
        if not any(found.own):
            return made
        there, own = own_column(found.own)
        return own if there.all() else pc.if_else(pa.array(there), own, made)

    def _expires(self, found: _Found) -> pa.Array:
        now = pa.array(found.expires, pa.int64()).cast(columns.TIME)
        if found.places.expires is None:
            return now
        return pc.coalesce(_times(found.places.expires, len(found.places)), now)


def _times(values: Numbers | None, count: int) -> pa.Array:
    if values is None:
        return pa.nulls(count, columns.TIME)
    return pa.array(values, pa.int64(), mask=values == NONE).cast(columns.TIME)
