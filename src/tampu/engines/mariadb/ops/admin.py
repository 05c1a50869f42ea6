"""Operations of cancel, free, replay and rerank, and reads that take several statements."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from tampu.engines.encoding import DELAYED, HELD, READY
from tampu.engines.mariadb.ops.common import Operation, by_queue, ints, start, with_attempts
from tampu.engines.mariadb.ops.publish import insert_ready
from tampu.engines.sql.db import Ints, Uuids

if TYPE_CHECKING:
    from tampu.engines.mariadb.database import Db


def request_cancel(db: Db, seqs: Ints) -> Operation:
    answer = db.submit("lock_leases_to_cancel", seqs)
    yield
    rows = answer.get()
    db.submit("request_cancel", Ints(seq for seq, *_ in rows))
    return rows


def release_held(db: Db, seqs: Ints) -> Operation:
    answer = db.submit("release_held", seqs)
    yield
    rows = answer.get()
    db.submit("remove_held", Ints(seq for seq, *_, waits in rows if not waits))
    return sorted(rows)


def revive_dead(db: Db, now: int, seqs: Ints, attempts: Ints) -> Operation:
    out = db.submit("revive_dead", seqs)
    given = dict(zip(seqs, attempts, strict=True))
    yield
    gone = Ints(seq for (seq,) in out.get())
    db.submit("clear_past_expiry", gone, now)
    if gone:
        db.submit("set_max_attempts", gone, Ints(given[seq] for seq in gone))
    return db.submit("select_rows", gone).get()


def remove_waiting(db: Db, seqs: Ints) -> Operation:
    answer = db.submit("locate_ready", seqs)
    yield
    found = answer.get()
    messages = {seq: (seq, *message) for seq, *message, _, _ in found}
    states: dict[int, tuple[int, int]] = {}
    ready = start(_out_of_ready(db, found))
    delayed, held = db.submit("remove_delayed", seqs), db.submit("remove_held", seqs)
    for state, rows in ((READY, ready()), (DELAYED, delayed.get()), (HELD, held.get())):
        states.update({seq: (attempts, state) for seq, attempts, *_ in rows})
    return [(*with_attempts(messages[seq], attempts), state) for seq, (attempts, state) in states.items()]


def lock_waiting(db: Db, seqs: Ints) -> Operation:
    answer = db.submit("locate_ready", seqs)
    yield
    messages = {seq: (seq, *message) for seq, *message, _, _ in answer.get()}
    ready = db.submit("lock_ready", *ints(_places(answer.get()), 3))
    answers = ready, db.submit("lock_delayed", seqs), db.submit("lock_held", seqs)
    return [messages[seq] for one in answers for (seq,) in one.get() if seq in messages]


def _places(located: Iterable[Any]) -> list[tuple[int, int, int]]:
    """(q, rank, pos) of these messages in `ready`, if they are there."""
    return sorted((q, rank or 0, seq if pos is None else pos) for seq, q, *_, rank, pos in located)


def _out_of_ready(db: Db, located: Sequence[Any]) -> Operation:
    """Delete these messages from `ready`, if they are there; returns the deleted rows."""
    queues = {seq: q for seq, q, *_ in located}
    out = db.submit("remove_ready", *ints(_places(located), 3))
    yield
    rows = out.get()
    db.note_left([(queues[seq], rank, pos) for seq, _, rank, pos, _ in rows])
    placed = [(queues[seq], seq) for seq, _, rank, pos, _ in rows if rank or pos != seq]
    for q, found in by_queue(placed).items():
        db.submit("delete_placed", q, Ints(found))
    return rows


def rerank(db: Db, q: int, seqs: Ints, places: Ints, ranks: Ints) -> Operation:
    """Change ranks. Ready messages are removed and inserted again with their new rank, at the same position."""
    answer = db.submit("locate_ready", seqs)
    yield
    new = dict(zip(seqs, places, strict=True))
    moving = [(seq, *message, rank, pos) for seq, *message, rank, pos in answer.get() if (rank or 0) != new[seq]]
    out = start(_out_of_ready(db, moving))()
    back = [(new[seq], pos, seq, lease, q, attempts) for seq, attempts, _, pos, lease in out]
    insert_ready(db, *ints(back, 6))
    db.submit("rerank", seqs, ranks)
    return []


def select_messages(db: Db, seqs: Ints) -> Operation:
    answer = db.submit("select_messages", seqs)
    yield
    found = {}
    for row in answer.get():
        seq, _, _, _, _, _, _, _, state, *_ = row
        if state is not None:
            found[seq] = row
    return [found[seq] for seq in seqs if seq in found]


def select_still_ended(db: Db, seqs: Ints) -> Operation:
    answer = db.submit("select_still_ended", seqs)
    yield
    found = {seq for (seq,) in answer.get()}
    return [(seq,) for seq in seqs if seq in found]


def find_messages(db: Db, tenant: str, seqs: Ints, stamps: Ints, ids: Uuids) -> Operation:
    made = db.submit("find_by_number", tenant, Ints(seq for seq in seqs if seq is not None))
    given = db.submit("find_by_own_id", tenant, ids)
    yield
    by_number = {(seq, stamp): (seq, q) for seq, q, stamp in made.get()}
    by_id = {id: (seq, q) for id, seq, q in given.get()}
    rows = []
    for n, (seq, stamp, id) in enumerate(zip(seqs, stamps, ids, strict=True), 1):
        place = by_number.get((seq, stamp)) or by_id.get(id or b"")
        if place is not None:
            rows.append((n, *place))
    return rows


def select_stats(db: Db, tenant: str, queue: str | None, now: int | None) -> Operation:
    answer = db.submit("select_stats_queues", tenant, queue, now)
    yield
    queues = answer.get()
    counts: dict[int, list[tuple[int | None, int]]] = {}
    for q, kind, n in db.submit("select_stats_counts", Ints(q for q, *_ in queues)).get():
        counts.setdefault(q, []).append((kind, n))
    return [(name, kind, n, oldest, at) for q, name, oldest, at in queues for kind, n in counts.get(q) or [(None, 0)]]
