"""Moves of messages that arrive, and of the marks (key, expiry) that waiting messages have."""

from __future__ import annotations

from typing import Any

from tampu.engines.codes import CODE
from tampu.engines.mariadb.moving import Rest, by_queue, entered, ints, nothing
from tampu.engines.mariadb.wire import Rows, Wire
from tampu.engines.sql.db import Blobs, Ints, Uuids
from tampu.model.states import FINAL, State

_DEAD, _ENDED = CODE[State.DEAD], tuple(CODE[state] for state in FINAL)


def publish_bare(wire: Wire, q: int, now: int, ahead: int | None, most: int, seqs: Ints, bodies: Blobs) -> Rest:
    wire.ask("publish_bare", q, now, ahead, most, seqs, bodies)
    entered(wire, [(q, 0, seq) for seq in seqs.values if seq is not None])
    return nothing


def load_rows(
    wire: Wire, q: int, now: int, ahead: int | None, most: int, seqs: Ints, ids: Uuids, bodies: Blobs
) -> Rest:
    wire.ask("load_rows", q, now, ahead, most, seqs, ids, bodies)
    entered(wire, [(q, 0, seq) for seq in seqs.values if seq is not None])
    return nothing


def publish_plain(
    wire: Wire, now: int, ahead: int | None, seqs: Ints, qs: Ints, ranks: Ints, most: Ints, expires: Ints, run: Ints,
    bodies: Blobs,
) -> Rest:  # fmt: skip
    wire.ask("publish_rows", now, ahead, seqs, qs, ranks, most, expires, bodies)
    rows = list(zip(seqs.values, qs.values, ranks.values, expires.values, run.values, strict=True))
    at_once = [(rank, seq, seq, None, q, 0) for seq, q, rank, _, run_at in rows if run_at is None]
    later = [(seq, run_at, None, q, 0) for seq, q, _, _, run_at in rows if run_at is not None]
    enter_ready(wire, *ints(at_once, 6))
    wire.ask("enter_delayed", *ints(later, 5))
    wire.ask("enter_expiry", *ints([(at, seq) for seq, _, _, at, _ in rows if at is not None], 2))
    return nothing


def store(wire: Wire, now: int, ahead: int | None, seqs: Ints, *columns: Any) -> Rest:
    wire.ask("store", now, ahead, seqs, *columns)
    given = [(id, seq) for id, seq in zip(columns[6].values, seqs.values, strict=True) if id is not None]
    wire.ask("store_ids", Uuids(id for id, _ in given), Ints(seq for _, seq in given))
    return nothing


def enter_ready(wire: Wire, ranks: Ints, positions: Ints, seqs: Ints, leases: Ints, qs: Ints, attempts: Ints) -> Rest:
    wire.ask("enter_ready", ranks, positions, seqs, leases, qs, attempts)
    rows = zip(qs.values, seqs.values, ranks.values, positions.values, strict=True)
    wire.ask("enter_placed", *ints([row for row in rows if row[2] or row[1] != row[3]], 4))
    entered(wire, list(zip(qs.values, ranks.values, positions.values, strict=True)))  # type: ignore[arg-type]  # no None
    return nothing


def drop_marks(wire: Wire, seqs: Ints) -> Rest:
    looked = wire.ask("marks", seqs)

    def rest() -> Rows:
        rows = looked.get()
        wire.ask("drop_expiry", *ints(sorted((at, seq) for seq, _, _, at in rows if at is not None), 2))
        keys = sorted((q, word, seq) for seq, q, word, _ in rows if word is not None)
        for q, found in by_queue(keys).items():
            wire.ask("drop_keys", q, Blobs(k[1] for k in found), Ints(k[2] for k in found))
        return []

    return rest


def adopt(
    wire: Wire, q: int, seqs: Ints, created: Ints, ranks: Ints, most: Ints, expires: Ints, ids: Uuids, keys: Blobs,
    lanes: Blobs, bodies: Blobs, states: Ints, attempts: Ints, times: Ints, reasons: Blobs,
) -> Rest:  # fmt: skip
    wire.ask("adopt", q, seqs, created, ranks, most, expires, ids, keys, lanes, bodies)
    wire.ask("store_ids", ids, seqs)
    rows = list(zip(seqs.values, times.values, attempts.values, states.values, reasons.values, strict=True))
    dead = [row for row in rows if row[3] == _DEAD]
    wire.ask("adopt_dead", q, *ints(dead, 3), Blobs(row[4] for row in dead))
    wire.ask("adopt_ended", q, *ints([row for row in rows if row[3] in _ENDED], 4))
    return nothing


def adopt_marks(wire: Wire, q: int, seqs: Ints, expires: Ints, keys: Blobs) -> Rest:
    rows = list(zip(seqs.values, expires.values, keys.values, strict=True))
    wire.ask("enter_expiry", *ints([(at, seq) for seq, at, _ in rows if at is not None], 2))
    named = sorted((key, seq) for seq, _, key in rows if key is not None)
    wire.ask("adopt_keys", q, Blobs(key for key, _ in named), Ints(seq for _, seq in named))
    return nothing


def journal_start(wire: Wire, offset: int) -> Rest:
    looked = wire.ask("journal_empty")

    def rest() -> Rows:
        ((empty,),) = looked.get()
        if not empty:
            return []
        wire.ask("journal_start", offset)
        return [(offset,)]

    return rest
