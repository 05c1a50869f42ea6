"""Operations that the rules of `tampu.engines.sql` run by name and that are more than a statement here.

The ready index has runs instead of messages, sequence numbers and journal offsets are given out in the commit, and
nothing is locked: one commit writes at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from tampu.engines.encoding import CANCELLED, DELAYED, DONE, EXPIRED, HELD, READY, pack_seqs
from tampu.engines.sql.db import Ints, Uuids, Values
from tampu.engines.sqlite import ready
from tampu.engines.sqlite.copies import insert_correlations, publish_copies, publish_ended
from tampu.engines.sqlite.ids import STEP, take_numbers

if TYPE_CHECKING:
    from tampu.engines.sqlite.database import Db

Rows = list[Any]
QUEUES_A_STEP = 500
"""Queues that one commit trims."""

# -- claim


def claim_ready(db: Db, q: int, limit: int, lease: int, lease_us: int, worker: bytes | None, now: int) -> Rows:
    """The claimed messages are a prefix of the index: one INSERT … SELECT and one range DELETE move all of them."""
    rows = db.rows("select_first", q, limit)
    if not rows:
        return rows
    kept = []
    for seq, _, _, _, _, expires, _, _, _, _ in rows:
        if expires is not None and expires <= now:
            ready.take(db, q, seq)
        else:
            kept.append(seq)
    if kept:
        text = None if worker is None else worker.decode()
        db.send("lease_first", lease, now + lease_us, text, q, len(kept), now)
        ready.take_first(db, q, kept[-1])
    if any(group is not None for _, _, _, _, _, _, _, _, group, _ in rows):
        return [(*row, None if group is None else group.encode(), body) for *row, group, body in rows]
    return rows


# -- settle


def ack(
    db: Db, seqs: Ints, lease: int, q: int, now: int, state: int, packed: bytes, until: int | None  # noqa: ARG001
) -> Rows:  # fmt: skip
    found = take_leases(db, Values("iii", [(seq, lease, q) for seq in seqs]))
    for seq, _, attempts, *_ in found:
        db.send("insert_ended", now, seq, lease, q, attempts, state)
    return [(seq, attempts, stamp, own, group) for seq, _, attempts, stamp, own, group, *_ in found]


def take_leases(db: Db, leases: Values) -> Rows:
    wanted = set(leases.rows)
    found = [
        (seq, q, *row, lease, worker, cancel, rate_us)
        for seq, q, *row, lease, worker, cancel, _, rate_us in _leases(db, (seq for seq, _, _ in leases.rows))
        if (seq, lease, q) in wanted
    ]
    db.send("delete_leases", Ints(seq for seq, *_ in found))
    return found


def _leases(db: Db, seqs: Iterable[int]) -> Rows:
    return db.rows("select_leases", Ints(dict.fromkeys(seqs)))


# -- waiting messages


def remove_waiting(db: Db, seqs: Ints) -> Rows:
    found = []
    for seq, q, _, *row in db.rows("select_rows", seqs):
        attempts, state = _remove(db, q, seq)
        if attempts is not None:
            found.append((seq, q, attempts, *row, state))
    return found


def _remove(db: Db, q: int, seq: int) -> tuple[int | None, int]:
    """(attempts, state) of a message that was taken out of ready, delayed or held."""
    run = ready.take(db, q, seq)
    if run is not None:
        _, _, _, attempts, _, _ = run
        return attempts, READY
    attempts = db.value("remove_delayed", seq)
    return (attempts, DELAYED) if attempts is not None else (db.value("remove_held", seq), HELD)


def lock_waiting(db: Db, seqs: Ints) -> Rows:
    return db.rows("select_rows", seqs)


def rerank(db: Db, q: int, changes: Values) -> Rows:
    """Ready messages stay at the same position."""
    db.send("set_rank", Values("ii", [(seq, rank) for seq, _, rank in changes.rows]))
    for seq, place, _ in changes.rows:
        run = ready.take(db, q, seq)
        if run is not None:
            _, pos, first, attempts, lease, _ = run
            db.send("insert_run", q, place, pos + seq - first, seq, attempts, lease, seq)
    return []


# -- groups


def release_slots(db: Db, ends: Values, most: int) -> Rows:
    left = dict.fromkeys((q, group) for q, group, _ in ends.rows)
    freed = set(db.rows("delete_slots", ends))
    next_: Rows = []
    rated: Rows = []
    for q, group in left:
        slots, rate_us = db.row("select_group_limits", q)
        if rate_us is not None:
            if (q, group) in freed:
                rated.append((None, q, None, None, None, group, *[None] * 5))
        elif db.row("is_group_waiting", q, group):  # first: counting the slots of a large group takes longer
            free = min(max(slots or 0, 1) - db.value("count_slots", q, group), most)
            if free > 0:
                next_ += db.rows("next_in_group", q, group, free)
    return [*sorted(next_), *rated]


# -- sweep


def begin_sweep(_db: Db) -> Rows:
    return [(True,)]


def end_sweep(_db: Db) -> Rows:
    return []


def lock_expired_leases(db: Db, leases: Values) -> Rows:
    wanted = set(leases.rows)
    rows = _leases(db, (seq for seq, _ in leases.rows))
    return [row for row, (seq, *_, lease, _, _, _, _) in zip(rows, rows, strict=True) if (seq, lease) in wanted]


def select_busy_leases(_db: Db, _leases: Values) -> Rows:
    return []


# -- reading


def find_messages(db: Db, tenant: str, seqs: Ints, _stamps: Ints, ids: Uuids) -> Rows:
    found = []
    for n, (seq, id) in enumerate(zip(seqs, ids, strict=True), 1):
        place = db.row("find_message", tenant, seq, id)
        if place is not None:
            found.append((n, *place))
    return found


def snapshot_find(db: Db, seqs: Ints, _stamps: Ints, ids: Uuids) -> Rows:
    found = db.rows("snapshot_find_numbers", Ints(seq for seq in seqs if seq is not None))
    return found + (
        db.rows("snapshot_find_ids", Values("u", [(id,) for id in ids])) if db.row("snapshot_has_given_ids") else []
    )


def snapshot_unmoved(db: Db, qs: Ints) -> Rows:
    return [(q, pack_seqs(range(seq, last + 1, STEP))) for q, seq, last in db.rows("snapshot_runs", qs)]


def page_ready(db: Db, q: int, rank: int, pos: int, limit: int) -> Rows:
    return ready.page(db, q, (rank, pos), limit)


# -- import


def import_endings(db: Db, q: int, endings: Values) -> Rows:
    numbers = take_numbers(db, len(endings.rows))
    rows = [(*ending, number) for ending, number in zip(endings.rows, numbers, strict=True)]
    db.send("insert_endings", q, Values("iibi", rows))
    return []


def lock_journal(db: Db) -> Rows:
    return [(db.offset,)]


def start_journal(db: Db, offset: int) -> Rows:
    if db.offset:
        return []
    db.offset = offset
    return [(offset,)]


# -- trim


def select_queues_to_trim(db: Db, _before: int, _now: int) -> Iterator[tuple[int, int]]:
    """Starts after the queue that was trimmed last. A commit over very many queues would block other writers."""
    last = db.trimmed
    queues = db.rows("select_next_queues", last, 1 << 62, QUEUES_A_STEP)
    queues += db.rows("select_next_queues", 0, last, QUEUES_A_STEP - len(queues))
    for (q,) in queues:
        db.trimmed = q
        for state in (DONE, CANCELLED, EXPIRED):
            if db.row("has_endings", q, state):
                yield q, state


def select_unread_entries(db: Db, nos: Ints, read: int) -> Rows:
    """Endings have sequence numbers, not journal offsets, and times may go back. So each trim notes the current number
    and offset. Once the readers have passed that offset, they have read everything up to the number."""
    (text,) = db.row("select_read_marks") or ("0 0 0 0",)
    stored = tuple(map(int, text.split()))
    known_offset, known, next_offset, next_number = stored
    now_number, now_offset = db.began
    if read >= now_offset:
        known_offset, known = next_offset, next_number = now_offset, now_number
    elif read < known_offset:  # a reader that is behind has joined
        known_offset, known, next_offset, next_number = 0, 0, now_offset, now_number
    elif read >= next_offset:
        known_offset, known, next_offset, next_number = next_offset, next_number, now_offset, now_number
    marks = (known_offset, known, next_offset, next_number)
    if marks != stored:
        db.send("set_read_marks", " ".join(map(str, marks)))
    return [(no,) for no in nos if no is not None and no > known]


def number_journal(_db: Db, _limit: int, _end: int) -> Rows:
    """Records have offsets when they are written."""
    return [(0,)]


OPERATIONS: dict[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (
        claim_ready, ack, take_leases, remove_waiting, lock_waiting, rerank, release_slots, begin_sweep, end_sweep,
        lock_expired_leases, select_busy_leases, find_messages, snapshot_find, snapshot_unmoved,
        page_ready, import_endings, lock_journal, start_journal, select_queues_to_trim, select_unread_entries,
        number_journal, publish_copies, publish_ended, insert_correlations,
    )
}  # fmt: skip
