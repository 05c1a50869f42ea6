"""Operations of publish, load and import, of the marks (key, expiry) of waiting messages, and the last of a commit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tampu.engines.encoding import CODE
from tampu.engines.mariadb.ops.common import Operation, by_queue, ints
from tampu.engines.sql.db import Blobs, Ints, Uuids
from tampu.model.states import FINAL, State

if TYPE_CHECKING:
    from tampu.engines.mariadb.database import Db

_DEAD, _ENDED = CODE[State.DEAD], tuple(CODE[state] for state in FINAL)


def publish_simple(db: Db, q: int, now: int, ahead: int | None, most: int, seqs: Ints, bodies: Blobs) -> None:
    db.submit("publish_simple", q, now, ahead, most, seqs, bodies)
    db.note_ready([(q, 0, seq) for seq in seqs if seq is not None])


def publish_copies(db: Db, now: int, ahead: int | None, most: int, qs: Ints, seqs: Ints, bodies: Blobs) -> None:
    count = len(bodies)
    for at, q in enumerate(qs):
        assert q is not None
        publish_simple(db, q, now, ahead, most, Ints(seqs[at * count : (at + 1) * count]), bodies)


def publish_ended(
    db: Db, q: int, now: int, ahead: int | None, most: int, state: int, seqs: Ints, bodies: Blobs
) -> None:
    same = len(seqs)
    db.submit(
        "insert_unkeyed_messages", now, ahead, seqs, Ints([q] * same), Ints([0] * same), Ints([most] * same),
        Ints([None] * same), bodies,
    )  # fmt: skip
    db.submit("insert_ended", now, *ints([(seq, None, q, 0, state) for seq in seqs], 5))


def insert_loaded(
    db: Db, q: int, now: int, ahead: int | None, most: int, seqs: Ints, ids: Uuids, bodies: Blobs
) -> None:
    db.submit("insert_loaded", q, now, ahead, most, seqs, ids, bodies)
    db.note_ready([(q, 0, seq) for seq in seqs if seq is not None])


def publish_without_lookup(
    db: Db, now: int, ahead: int | None, seqs: Ints, qs: Ints, ranks: Ints, most: Ints, expires: Ints, run: Ints,
    bodies: Blobs,
) -> None:  # fmt: skip
    db.submit("insert_unkeyed_messages", now, ahead, seqs, qs, ranks, most, expires, bodies)
    rows = list(zip(seqs, qs, ranks, expires, run, strict=True))
    at_once = [(rank, seq, seq, None, q, 0) for seq, q, rank, _, run_at in rows if run_at is None]
    later = [(seq, run_at, None, q, 0) for seq, q, _, _, run_at in rows if run_at is not None]
    insert_ready(db, *ints(at_once, 6))
    db.submit("insert_delayed", *ints(later, 5))
    db.submit("insert_expiries", *ints([(at, seq) for seq, _, _, at, _ in rows if at is not None], 2))


def insert_messages(db: Db, now: int, ahead: int | None, seqs: Ints, *columns: Any) -> None:
    db.submit("insert_messages", now, ahead, seqs, *columns)
    _, _, _, _, _, _, ids, *_ = columns
    given = [(id, seq) for id, seq in zip(ids, seqs, strict=True) if id is not None]
    db.submit("insert_own_ids", Uuids(id for id, _ in given), Ints(seq for _, seq in given))


def insert_ready(db: Db, ranks: Ints, positions: Ints, seqs: Ints, leases: Ints, qs: Ints, attempts: Ints) -> None:
    db.submit("insert_ready", ranks, positions, seqs, leases, qs, attempts)
    rows = zip(qs, seqs, ranks, positions, strict=True)
    db.submit("insert_placed", *ints([(q, seq, rank, pos) for q, seq, rank, pos in rows if rank or seq != pos], 4))
    db.note_ready(list(zip(qs, ranks, positions, strict=True)))  # type: ignore[arg-type]  # no None


def delete_keys_and_expiries(db: Db, seqs: Ints) -> Operation:
    answer = db.submit("select_keys_and_expiries", seqs)
    yield
    rows = answer.get()
    db.submit("delete_expiries", *ints(sorted((at, seq) for seq, _, _, at in rows if at is not None), 2))
    keys = sorted((q, (word, seq)) for seq, q, word, _ in rows if word is not None)
    for q, found in by_queue(keys).items():
        db.submit("delete_keys", q, Blobs(word for word, _ in found), Ints(seq for _, seq in found))
    return []


def import_messages(
    db: Db, q: int, seqs: Ints, created: Ints, ranks: Ints, most: Ints, expires: Ints, ids: Uuids, keys: Blobs,
    groups: Blobs, bodies: Blobs, states: Ints, attempts: Ints, times: Ints, reasons: Blobs,
) -> None:  # fmt: skip
    db.submit("import_messages", q, seqs, created, ranks, most, expires, ids, keys, groups, bodies)
    db.submit("insert_own_ids", ids, seqs)
    rows = list(zip(seqs, times, attempts, states, reasons, strict=True))
    dead = [(seq, at, count, reason) for seq, at, count, state, reason in rows if state == _DEAD]
    db.submit("import_dead", q, *ints(dead, 3), Blobs(reason for _, _, _, reason in dead))
    db.submit("import_ended", q, *ints([(*row, state) for *row, state, _ in rows if state in _ENDED], 4))


def import_keys_and_expiries(db: Db, q: int, seqs: Ints, expires: Ints, keys: Blobs) -> None:
    rows = list(zip(seqs, expires, keys, strict=True))
    db.submit("insert_expiries", *ints([(at, seq) for seq, at, _ in rows if at is not None], 2))
    named = sorted((key, seq) for seq, _, key in rows if key is not None)
    db.submit("import_keys", q, Blobs(key for key, _ in named), Ints(seq for _, seq in named))


def start_journal(db: Db, offset: int) -> Operation:
    answer = db.submit("is_journal_empty")
    yield
    ((empty,),) = answer.get()
    if not empty:
        return []
    db.submit("start_journal", offset)
    return [(offset,)]


def write_commit(
    db: Db, now: int, sizes: Ints, qs: Ints, records: Blobs, count_q: Ints, kinds: Ints, changes: Ints,
    end_q: Ints, states: Ints, ends: Blobs, untils: Ints, leases: Ints, claims: Blobs,
) -> None:  # fmt: skip
    count = len(sizes)
    if count:
        db.submit("insert_journal", now, sizes[0], qs[0], records[0])
        db.submit(
            "insert_journal_rest", now, Ints(range(2, count + 1)), Ints(sizes[1:]), Ints(qs[1:]),
            Blobs(records[1:]),
        )  # fmt: skip
    elif end_q:
        db.submit("draw_entry_number")
    db.submit("insert_counts", count_q, kinds, changes)
    db.submit("insert_endings", now, end_q, states, ends)
    db.submit("schedule_reap", untils, leases, claims)
