"""Operations of claim, settle and extend, and of the slots of groups."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from tampu.engines.mariadb.ops.common import Operation, Rows, by_queue, ints
from tampu.engines.sql.db import Blobs, Ints, Uuids
from tampu.engines.sql.verbs.claim import EXPIRES, Row

if TYPE_CHECKING:
    from tampu.engines.mariadb.database import Db

_Found = tuple[tuple[int, int], Row]
"""(rank, pos), and a row as in `tampu.engines.sql.verbs.claim`."""


def claim_ready(
    db: Db, q: int, limit: int, lease: int, lease_us: int, worker: bytes | None, now: int | None
) -> Operation:
    offered = [] if db.index is None else db.index.offer(q, limit)
    db.offered.extend((q, *place) for place in offered)
    answer = db.submit("claim_offered", q, *ints(offered, 2)) if offered else db.submit("claim_ready", q, limit)
    yield
    found = _parse_rows(answer.get())
    if offered:
        found = _choose(db, q, limit, offered, found)
    db.note_left([(q, rank, pos) for (rank, pos), _ in found])
    at = db.now if now is None else now
    _leave_ready(db, q, found)
    rows = [row for _, row in found]
    kept = [row for row in rows if row[EXPIRES] is None or row[EXPIRES] > at]
    if kept:
        seqs, attempts, _, stamps, _, _, _, ids, groups, _ = zip(*kept, strict=True)
        db.submit(
            "insert_leases", q, lease, lease_us, worker, at, Ints(seqs), Ints(stamps),
            Ints(before + 1 for before in attempts), Uuids(ids), Blobs(groups),
        )  # fmt: skip
    return rows


def _choose(db: Db, q: int, limit: int, offered: Sequence[tuple[int, int]], rows: list[_Found]) -> list[_Found]:
    """What to claim: what the index proposed, or the head of the database's own index if the index may be wrong."""
    last = max(offered)
    # This commit itself may have made messages ready before the claim; the index does not have them yet.
    overtaken = any((rank, pos) < last for queue, rank, pos in db.entered if queue == q)
    if not db.stale and len(rows) == len(offered) and not overtaken:
        return rows
    found = dict(_parse_rows(db.submit("claim_ready", q, limit).get()))
    if not db.stale:
        found.update(rows)
    chosen = sorted(found)[:limit]
    # Give proposed messages that are not taken back to the index; those that are no longer ready are dropped.
    kept = [place for place, _ in rows if place not in chosen]
    db.entered.extend((q, *place) for place in kept)
    return [(place, found[place]) for place in chosen]


def _parse_rows(rows: Rows) -> list[_Found]:
    return sorted([_parse_row(text, body) for text, body in rows], key=itemgetter(0))


def _parse_row(text: str, body: bytes) -> _Found:
    seq, attempts, created, ahead, most, expires, named, id, group, rank, pos = text.split(" ")
    at = int(created)
    return (int(rank), int(pos)), (
        int(seq), int(attempts), at, at // 1000 + int(ahead), int(most), int(expires) if expires else None,
        named == "1", bytes.fromhex(id) if id else None, bytes.fromhex(group) if group else None, body,
    )  # fmt: skip


def _leave_ready(db: Db, q: int, rows: Sequence[_Found]) -> None:
    """Delete claimed rows from `ready`, one statement per rank: mostly there is one."""
    by_rank: dict[int, list[int]] = {}
    placed = []
    for (rank, pos), (seq, *_) in rows:
        by_rank.setdefault(rank, []).append(pos)
        if rank or pos != seq:
            placed.append(seq)
    for rank, positions in by_rank.items():
        db.submit("delete_ready", q, rank, Ints(positions))
    db.submit("delete_placed", q, Ints(placed))


def ack(
    db: Db, seqs: Ints, lease: int, q: int, now: int | None, state: int, packed: bytes, left: int | None
) -> Operation:
    fenced = db.submit("ack", seqs, lease, q)
    yield
    acked = [_parse_acked(text) for (text,) in fenced.get()]
    rows = [row for row, _ in acked]
    if rows:
        gone, attempts, *_ = zip(*rows, strict=True)
        db.submit("insert_acked", lease, q, db.now if now is None else now, state, Ints(gone), Ints(attempts))
        if left is not None and len(rows) == len(seqs):
            db.submit("delete_settled_claims", Ints([left]), Ints([lease]))
        else:
            db.submit("delete_whole_claim", lease, min(until for _, until in acked), packed)
    return rows


def _parse_acked(text: str) -> tuple[tuple[Any, ...], int]:
    """((seq, attempts, stamp, id, group), until) from a row of `ack`."""
    seq, attempts, stamp, until, id, group = text.split(" ")
    own = bytes.fromhex(id) if id else None
    return (int(seq), int(attempts), int(stamp), own, bytes.fromhex(group) if group else None), int(until)


def take_leases(db: Db, seqs: Ints, leases: Ints, qs: Ints) -> Operation:
    fenced = db.submit("take_leases", seqs, leases, qs)
    yield
    rows = fenced.get()
    db.submit("delete_leases", Ints(seq for seq, *_ in rows))
    return rows


def extend_leases(db: Db, now: int, seqs: Ints, leases: Ints, qs: Ints, times: Ints) -> Operation:
    answer = db.submit("lock_leases_to_extend", seqs, leases, qs)
    yield
    until = {(seq, lease): now + (us or 0) for seq, lease, us in zip(seqs, leases, times, strict=True)}
    rows = [(seq, lease, until[seq, lease], cancel, at) for seq, lease, at, cancel in answer.get()]
    by_end: dict[int, list[int]] = {}
    for seq, _, end, _, _ in rows:
        by_end.setdefault(end, []).append(seq)
    for end, found in by_end.items():
        db.submit("extend_leases", end, Ints(found), now)
    return rows


def release_slots(db: Db, qs: Ints, groups: Blobs, seqs: Ints, most: int) -> Operation:
    left = {(q, group, seq) for q, group, seq in zip(qs, groups, seqs, strict=True)}
    names = sorted({(q, group) for q, group, _ in left})
    rows = yield from select_slots(db, Ints(q for q, _ in names), Blobs(group for _, group in names))
    over = [(q, group, seq) for q, group, *_, seq in rows if (q, group, seq) in left]
    _delete_slots(db, over)
    free_slots: dict[tuple[int, bytes], int] = {}
    has_group_rate: set[tuple[int, bytes]] = set()
    for q, group, places, group_rate, _, seq in rows:
        if group_rate is not None:
            has_group_rate.add((q, group))
            continue
        kept = seq is not None and (q, group, seq) not in left
        free_slots[q, group] = free_slots.get((q, group), max(places or 0, 1)) - kept
    waits = has_group_rate.intersection((q, group) for q, group, _ in over)
    rated = [(None, q, None, None, None, group, *[None] * 5) for q, group in sorted(waits)]
    return _next_in_group(db, [(name, min(free, most)) for name, free in free_slots.items() if free > 0]) + rated


def _delete_slots(db: Db, slots: Sequence[tuple[int, bytes, int]]) -> None:
    for q, found in by_queue((q, (group, seq)) for q, group, seq in slots).items():
        db.submit("delete_slots", q, Blobs(group for group, _ in found), Ints(seq for _, seq in found))


def delete_slots(db: Db, qs: Ints, groups: Blobs, seqs: Ints) -> None:
    _delete_slots(db, list(zip(qs, groups, seqs, strict=True)))  # type: ignore[arg-type]  # none is None


def next_in_group(db: Db, qs: Ints, groups: Blobs, limits: Ints) -> Operation:
    """Take the next messages of groups with a rate out of held."""
    names = zip(qs, groups, strict=True)
    yield
    return _next_in_group(db, list(zip(names, limits, strict=True)))


def _next_in_group(db: Db, limits: Sequence[tuple[Any, Any]]) -> Rows:
    """Take the next messages of each ((q, group), number) out of held; returns message rows with run_at."""
    answers = [db.submit("next_in_group", *name, free) for name, free in limits]
    nexts = Ints(seq for one in answers for (seq,) in one.get())
    out, messages = db.submit("remove_held", nexts), db.submit("select_rows", nexts)
    waited = {seq: (attempts, run_at) for seq, attempts, run_at in out.get()}
    rows = []
    for seq, q, _, *message in sorted(messages.get()):
        if seq in waited:
            attempts, run_at = waited[seq]
            rows.append((seq, q, attempts, *message, run_at))
    return rows


def select_group_rates(db: Db, qs: Ints, groups: Blobs) -> Operation:
    """Rows (q, group, spent, leased seq); also one row without seq for each group."""
    answers = []
    for q, found in by_queue(zip(qs, groups, strict=True)).items():
        column = Blobs(found)
        answers.append(
            (q, found, db.submit("select_group_rates", q, column), db.submit("select_leased_slots", q, column))
        )
    yield
    rows: list[Any] = []
    for q, names, spent, leased in answers:
        known = dict(spent.get())
        rows += [(q, group, known.get(group), None) for group in names]
        rows += [(q, group, known.get(group), seq) for group, seq in leased.get()]
    return rows


def select_slots(db: Db, qs: Ints, groups: Blobs) -> Operation:
    """Rows (q, group, slots, rate, burst, seq); one row without seq for a group with no taken slot."""
    answers = [
        (
            q,
            found,
            db.submit("select_group_limits", q),
            db.submit("select_slots", q, Blobs(found)),
        )
        for q, found in by_queue(zip(qs, groups, strict=True)).items()
    ]
    yield
    rows = []
    for q, names, places, slots in answers:
        (known,) = places.get()
        taken = [(q, group, *known, seq) for group, seq in slots.get()]
        seen = {group for _, group, *_ in taken}
        rows += [*taken, *((q, group, *known, None) for group in names if group not in seen)]
    return rows
