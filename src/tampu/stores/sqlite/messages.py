"""A snapshot of messages in the embedded file, read by several processes while the queues stay in use.

The plan is made in one read transaction and records the state of every message. Ended messages do not change, and rows
of `tampu_ending`, which list them, are only appended: a piece has a range of those. Live and dead messages may move at
any time: a piece carries their index rows. Bodies are read later; they do not change, except that a key may give a
waiting message a new payload.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from tampu.engines.encoding import CODE, DEAD, DELAYED, HELD, LEASED, PARTITION, READY, as_json, id_bytes, unpack_seqs
from tampu.engines.sqlite import SqliteEngine, ids, ready
from tampu.engines.sqlite.database import Db
from tampu.model.decoders import from_msgpack
from tampu.model.errors import Unavailable
from tampu.model.states import FINAL
from tampu.stores import columns
from tampu.stores.arrow.bulk_ids import Numbers
from tampu.stores.port import MessageQuery, SnapshotPlan
from tampu.stores.sqlite.rows import NONE, ROWS, Places, batches, gone

LEAST = 10_000
"""Minimum number of messages in a piece: opening the file costs as much as reading this many."""

_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")
_ENDED = tuple(CODE[state] for state in FINAL)
_LAST = (1 << 63) - 1
# State: (table, run_at, ended at, reason)
_INDEXES = {
    DELAYED: ("tampu_delayed", "t.run_at", "NULL", "NULL"),
    LEASED: ("tampu_leased", "NULL", "NULL", "NULL"),
    HELD: ("tampu_held", "t.run_at", "NULL", "t.reason"),
    DEAD: ("tampu_dead", "NULL", "t.at", "t.reason"),
}
Index = tuple[int, int, int, int, int | None, int | None, str | None]
"""(seq, q, state, attempts, run_at, ended at, reason)"""
Run = tuple[int, int, int, int]
"""(q, first, last, attempts) of consecutive ready messages that never failed"""


class _Range(msgspec.Struct, array_like=True, frozen=True):
    """A range of rows of `tampu_ending` of one queue and state."""

    q: int
    state: int
    first: int
    last: int
    count: int


class _Piece(msgspec.Struct, array_like=True):
    tail: int
    """Tail of the ids, which differs between files."""
    now: int
    query: MessageQuery
    ended: list[_Range]
    runs: list[Run]
    live: list[bytes]
    """Index rows, column by column."""


Unit = tuple[int, _Range | Run | bytes]
"""(number of messages, what to read)"""

_to_piece = from_msgpack(_Piece).decode
_pack = msgspec.msgpack.encode


# -- planning


def plan(engine: SqliteEngine, query: MessageQuery, pieces: int) -> SnapshotPlan:
    units: list[Unit] = []
    with engine.snapshot() as db:
        latest = int(db.execute("SELECT n FROM tampu_counter WHERE q = 0 AND kind = 1").fetchone()[0])
        now = engine.now()
        queues = _queues(db, query)
        codes = {CODE[state] for state in query.states}
        rows: list[Index] = []
        if query.ids is not None:
            known = [place for place in _by_id(db, engine.registry.tail, query.ids) if place[1] in queues]
            rows = [row for row in _by_number(db, known) if row[2] in codes and _ended_within(row[5], query)]
        else:
            for q in queues:
                for code in codes:
                    if code in _ENDED:
                        units += ((found.count, found) for found in _ranges(db, q, code, query))
                    elif code in _INDEXES:
                        rows += (row for row in _index(db, q, code) if _ended_within(row[5], query))
                    elif query.ended_from is None and query.ended_to is None:
                        runs, single = _ready(db, q)
                        units += ((_length(run), run) for run in runs)
                        rows += single
        rows.sort()
        for start in range(0, len(rows), LEAST):
            some = rows[start : start + LEAST]
            units.append((len(some), _packed(_live(db, some))))
    empty = _Piece(engine.registry.tail, now, query, [], [], [])
    return SnapshotPlan({PARTITION: latest}, [_pack(piece) for piece in _share_out(units, pieces, empty)])


def _share_out(units: Sequence[Unit], pieces: int, empty: _Piece) -> list[_Piece]:
    size = max(LEAST, -(-sum(count for count, _ in units) // pieces))
    made: list[_Piece] = []
    left = 0
    for count, unit in units:
        if left <= 0:
            made.append(msgspec.structs.replace(empty, ended=[], runs=[], live=[]))
            left = size
        left -= count
        if isinstance(unit, _Range):
            _join(made[-1].ended, unit)
        elif isinstance(unit, bytes):
            made[-1].live.append(unit)
        else:
            made[-1].runs.append(unit)
    return made


def _join(ranges: list[_Range], more: _Range) -> None:
    if ranges and (ranges[-1].q, ranges[-1].state) == (more.q, more.state):
        last = ranges.pop()
        more = _Range(more.q, more.state, last.first, more.last, last.count + more.count)
    ranges.append(more)


def _queues(db: Db, query: MessageQuery) -> list[int]:
    return [
        q
        for q, tenant, name in db.execute("SELECT q, tenant, name FROM tampu_queue ORDER BY q")
        if (query.tenant is None or tenant == query.tenant) and (not query.queues or name in query.queues)
    ]


def _ended_within(at: int | None, query: MessageQuery) -> bool:
    if query.ended_from is None and query.ended_to is None:
        return True
    return (
        at is not None
        and (query.ended_from is None or at >= query.ended_from)
        and (query.ended_to is None or at < query.ended_to)
    )


def _endings(
    db: Db, q: int, state: int, query: MessageQuery, first: int, last: int
) -> Iterable[tuple[int, int, bytes]]:
    """(no, at, seqs), by no."""
    return db.execute(
        "SELECT no, at, seqs FROM tampu_ending WHERE q = ? AND state = ? AND no BETWEEN ? AND ?"
        " AND at >= ? AND at < ? ORDER BY no",
        (q, state, first, last, query.ended_from or 0, _LAST if query.ended_to is None else query.ended_to),
    )


def _ranges(db: Db, q: int, state: int, query: MessageQuery) -> Iterator[_Range]:
    first = last = count = 0
    for no, _, seqs in _endings(db, q, state, query, 0, _LAST):
        if not count:
            first = no
        last = no
        count += len(unpack_seqs(seqs))
        if count >= LEAST:
            yield _Range(q, state, first, last, count)
            count = 0
    if count:
        yield _Range(q, state, first, last, count)


def _index(db: Db, q: int, code: int) -> Iterator[Index]:
    table, run_at, at, reason = _INDEXES[code]
    return db.execute(
        f"SELECT t.seq, t.q, {code}, t.attempts, {run_at}, {at}, {reason} FROM {table} t WHERE t.q = ?",  # noqa: S608 - constants
        (q,),
    )


def _ready(db: Db, q: int) -> tuple[list[Run], list[Index]]:
    """Runs, in parts of bounded size; and separately the messages that may have failed before."""
    runs: list[Run] = []
    single: list[Index] = []
    failed = db.execute("SELECT 1 FROM tampu_failure LIMIT 1").fetchone() is not None
    for seq, last, attempts in db.execute("SELECT seq, last, attempts FROM tampu_ready WHERE q = ?", (q,)):
        if failed and seq == last:
            single.append((seq, q, READY, attempts, None, None, None))
        else:
            step = LEAST * ids.STEP
            runs += ((q, start, min(last, start + step - ids.STEP), attempts) for start in range(seq, last + 1, step))
    return runs, single


def _length(run: Run) -> int:
    return (run[2] - run[1]) // ids.STEP + 1


def _by_id(db: Db, tail: int, wanted: Iterable[str]) -> list[tuple[int, int]]:
    """(seq, q) of messages of all tenants; several tenants may have given the same id."""
    known = [id for id in dict.fromkeys(wanted) if _ID.match(id)]
    numbers = [seq for seq in (ids.seq_of(id, tail) for id in known) if seq is not None]
    found = db.execute(
        "SELECT m.seq, m.q FROM json_each(?) j CROSS JOIN tampu_message m ON m.seq = j.value", (as_json(numbers),)
    ).fetchall()
    if db.execute("SELECT 1 FROM tampu_message WHERE id IS NOT NULL LIMIT 1").fetchone():
        for id in known:
            found += db.execute("SELECT seq, q FROM tampu_message WHERE id = ?", (id_bytes(id),))
    return found


def _by_number(db: Db, known: Sequence[tuple[int, int]]) -> list[Index]:
    """Index rows of messages in any state."""
    left = dict(known)
    found: list[Index] = db.execute(
        "SELECT e.seq, e.q, e.state, e.attempts, NULL, e.at, NULL FROM json_each(?) j"
        " CROSS JOIN tampu_ended e ON e.seq = j.value",
        (as_json(left),),
    ).fetchall()
    for row in found:
        del left[row[0]]
    for code, (table, run_at, at, reason) in _INDEXES.items():
        if left:
            rows = db.execute(
                f"SELECT t.seq, t.q, {code}, t.attempts, {run_at}, {at}, {reason} FROM json_each(?) j"  # noqa: S608 - constants
                f" CROSS JOIN {table} t ON t.seq = j.value",
                (as_json(left),),
            ).fetchall()
            found += rows
            for row in rows:
                del left[row[0]]
    for seq, q in left.items():
        run = ready.find(db, q, seq)
        assert run is not None, "a message is in no index"
        found.append((seq, q, READY, run[3], None, None, None))
    return found


def _live(db: Db, rows: Sequence[Index]) -> Places:
    """Index rows as columns, with the other values that may change: failures so far, and expiry of dead messages."""
    seqs, queues, states, attempts, run_at, ended_at, reasons = zip(*rows, strict=True)
    text = as_json(seqs)
    failures = dict(
        db.execute(
            "SELECT f.seq, max(f.no) FROM json_each(?) j CROSS JOIN tampu_failure f ON f.seq = j.value GROUP BY f.seq",
            (text,),
        ).fetchall()
    )
    expires: dict[int, int] = {}
    if DEAD in states:
        dead = as_json(seq for seq, state in zip(seqs, states, strict=True) if state == DEAD)
        expires = dict(
            db.execute(
                "SELECT m.seq, m.expires FROM json_each(?) j CROSS JOIN tampu_message m ON m.seq = j.value"
                " WHERE m.expires IS NOT NULL",
                (dead,),
            ).fetchall()
        )
    return Places(
        _numbers(seqs),
        _numbers(queues),
        _numbers(states),
        _numbers(attempts),
        _numbers(NONE if at is None else at for at in run_at) if any(run_at) else None,
        _numbers(NONE if at is None else at for at in ended_at) if any(ended_at) else None,
        list(reasons) if any(reasons) else None,
        _numbers(failures.get(seq, 0) for seq in seqs),
        _numbers(expires.get(seq, NONE) for seq in seqs) if expires else None,
    )


def _numbers(values: Iterable[int]) -> Numbers:
    return np.fromiter(values, np.int64)


def _packed(places: Places) -> bytes:
    columns_ = [v.tobytes() if isinstance(v, np.ndarray) else v for v in msgspec.structs.astuple(places)]
    return zlib.compress(_pack(columns_), 1)


def _unpacked(raw: bytes) -> Places:
    given = msgspec.msgpack.decode(zlib.decompress(raw))
    columns_: list[Any] = [np.frombuffer(v, np.int64) if isinstance(v, bytes) else v for v in given]
    return Places(*columns_)


# -- reading


def read(engine: SqliteEngine, raw: bytes) -> Iterator[pa.RecordBatch]:
    piece = _to_piece(raw)
    if piece.tail != engine.registry.tail:
        raise Unavailable(
            "this is not the file the read was planned on",
            hint="the url must name the same file on the driver and on every executor",
        )
    query = piece.query
    for places in _places(engine, piece):
        yield from batches(engine, places, piece.now, query)


def _places(engine: SqliteEngine, piece: _Piece) -> Iterator[Places]:
    for packed in piece.live:
        yield _unpacked(packed)
    for q, first, last, attempts in piece.runs:
        seqs = np.arange(first, last + 1, ids.STEP, dtype=np.int64)
        yield _same(seqs, q, READY, np.full(len(seqs), attempts, np.int64), failures=np.zeros(len(seqs), np.int64))
    for found in piece.ended:
        yield from _ended(engine, found, piece.query)


def _ended(engine: SqliteEngine, wanted: _Range, query: MessageQuery) -> Iterator[Places]:
    seen, first = 0, wanted.first
    while first <= wanted.last:
        parts: list[Numbers] = []
        times: list[int] = []
        size = 0
        with engine.snapshot() as db:
            for no, at, packed in _endings(db, wanted.q, wanted.state, query, first, wanted.last):
                parts.append(_numbers(unpack_seqs(packed)))
                times.append(at)
                size += len(parts[-1])
                first = no + 1
                if size >= ROWS:
                    break
            else:
                first = wanted.last + 1
        if size:
            seqs = np.concatenate(parts)
            order = np.argsort(seqs, kind="stable")
            ended_at = np.repeat(np.array(times, np.int64), [len(part) for part in parts])[order]
            seen += size
            yield _same(seqs[order], wanted.q, wanted.state, None, ended_at=ended_at)
    if seen != wanted.count:
        raise gone(wanted.count - seen)


def _same(
    seqs: Numbers,
    q: int,
    state: int,
    attempts: Numbers | None,
    ended_at: Numbers | None = None,
    failures: Numbers | None = None,
) -> Places:
    count = len(seqs)
    return Places(
        seqs, np.full(count, q, np.int64), np.full(count, state, np.int64), attempts, None, ended_at, None, failures
    )


def by_ids(engine: SqliteEngine, tenant: str, wanted: Sequence[str]) -> pa.Table:
    now = engine.now()
    with engine.snapshot() as db:
        queues = set(_queues(db, MessageQuery(tenant=tenant)))
        known = [place for place in _by_id(db, engine.registry.tail, wanted) if place[1] in queues]
        rows = sorted(_by_number(db, known))
        places = _live(db, rows) if rows else None
    if places is None:
        return columns.MESSAGES.empty_table()
    found = pa.Table.from_batches(batches(engine, places, now, MessageQuery()), columns.MESSAGES)
    order = {id: i for i, id in enumerate(found.column("id").to_pylist())}
    return found.take([order[id] for id in wanted if id in order])
