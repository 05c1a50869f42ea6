"""Moves of claim and settle: ready to leased, leased to ended, and the turns of groups."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Any
from uuid import UUID

from tampu.engines.mariadb.ops.common import Rest, by_queue, ids_of, ints, left, nothing
from tampu.engines.mariadb.wire import Rows, Wire
from tampu.engines.sql.claim import EXPIRES, Row
from tampu.engines.sql.db import Blobs, Ints

_Found = tuple[tuple[int, int], Row]
"""Rank and pos, and a row as `claim` wants it."""


def claim_ready(
    wire: Wire, q: int, limit: int, lease: int, lease_us: int, worker: bytes | None, now: int | None
) -> Rest:
    offered = [] if wire.index is None else wire.index.offer(q, limit)
    wire.offered.extend((q, *place) for place in offered)
    looked = wire.ask("claim_offered", q, *ints(offered, 2)) if offered else wire.ask("claim_ready", q, limit)

    def rest() -> Rows:
        found = _read(looked.get())
        if offered:
            found = _proven(wire, q, limit, offered, found)
        left(wire, [(q, rank, pos) for (rank, pos), _ in found])
        at = wire.now if now is None else now
        _leave_ready(wire, q, found)
        rows = [row for _, row in found]
        kept = [row for row in rows if row[EXPIRES] is None or row[EXPIRES] > at]
        if kept:
            seqs, attempts, _, stamps, _, _, _, ids, groups, _ = zip(*kept, strict=True)
            wire.ask(
                "insert_leases", q, lease, lease_us, worker, at, Ints(seqs), Ints(stamps),
                Ints(before + 1 for before in attempts), ids_of(ids), Blobs(groups),
            )  # fmt: skip
        return rows

    return rest


def _proven(wire: Wire, q: int, limit: int, offered: Sequence[tuple[int, int]], rows: list[_Found]) -> list[_Found]:
    """What to take, when the index has proposed something: that, or the head of the database's own index."""
    last = max(offered)
    # This very commit may have made others ready, before the claim: of them the index has not been told.
    overtaken = any((rank, pos) < last for queue, rank, pos in wire.entered if queue == q)
    if not wire.stale and len(rows) == len(offered) and not overtaken:
        return rows
    found = dict(_read(wire.ask("claim_ready", q, limit).get()))
    if not wire.stale:
        found.update(rows)
    chosen = sorted(found)[:limit]
    # Proposed, there, and not taken after all: the index has it back. What is not there any more is dropped.
    kept = [place for place, _ in rows if place not in chosen]
    wire.entered.extend((q, *place) for place in kept)
    return [(place, found[place]) for place in chosen]


def _read(rows: Rows) -> list[_Found]:
    return sorted([_taken(text, body) for text, body in rows], key=itemgetter(0))


def _taken(text: str, body: bytes) -> _Found:
    seq, attempts, created, ahead, most, expires, named, id, group, rank, pos = text.split(" ")
    at = int(created)
    return (int(rank), int(pos)), (
        int(seq), int(attempts), at, at // 1000 + int(ahead), int(most), int(expires) if expires else None,
        named == "1", UUID(id) if id else None, bytes.fromhex(group) if group else None, body,
    )  # fmt: skip


def _leave_ready(wire: Wire, q: int, rows: Sequence[_Found]) -> None:
    """Rows of `claim_ready` leave the index: by ranks, of which a claim mostly sees one."""
    by_rank: dict[int, list[int]] = {}
    placed = []
    for (rank, pos), (seq, *_) in rows:
        by_rank.setdefault(rank, []).append(pos)
        if rank or pos != seq:
            placed.append(seq)
    for rank, positions in by_rank.items():
        wire.ask("delete_ready", q, rank, Ints(positions))
    wire.ask("delete_placed", q, Ints(placed))


def ack(
    wire: Wire, seqs: Ints, lease: int, q: int, now: int | None, state: int, packed: bytes, left: int | None
) -> Rest:
    fenced = wire.ask("ack", seqs, lease, q)

    def rest() -> Rows:
        acked = [_acked(text) for (text,) in fenced.get()]
        rows = [row for row, _ in acked]
        if rows:
            gone, attempts, *_ = zip(*rows, strict=True)
            wire.ask("insert_acked", lease, q, wire.now if now is None else now, state, Ints(gone), Ints(attempts))
            if left is not None and len(rows) == len(seqs.values):
                wire.ask("delete_settled_claims", Ints([left]), Ints([lease]))
            else:
                wire.ask("delete_whole_claim", lease, min(until for _, until in acked), packed)
        return rows

    return rest


def _acked(text: str) -> tuple[tuple[Any, ...], int]:
    """(seq, attempts, stamp, id, group) out of what `ack` answers, and until."""
    seq, attempts, stamp, until, id, group = text.split(" ")
    own = UUID(id) if id else None
    return (int(seq), int(attempts), int(stamp), own, bytes.fromhex(group) if group else None), int(until)


def take_leases(wire: Wire, seqs: Ints, leases: Ints, qs: Ints) -> Rest:
    fenced = wire.ask("take_leases", seqs, leases, qs)

    def rest() -> Rows:
        rows = fenced.get()
        wire.ask("delete_leases", Ints(seq for seq, *_ in rows))
        return rows

    return rest


def extend_leases(wire: Wire, now: int, seqs: Ints, leases: Ints, qs: Ints, times: Ints) -> Rest:
    looked = wire.ask("lock_leases_to_extend", seqs, leases, qs)

    def rest() -> Rows:
        until = {
            (seq, lease): now + (us or 0)
            for seq, lease, us in zip(seqs.values, leases.values, times.values, strict=True)
        }
        rows = [(seq, lease, until[seq, lease], bool(cancel), at) for seq, lease, at, cancel in looked.get()]
        by_end: dict[int, list[int]] = {}
        for seq, _, end, _, _ in rows:
            by_end.setdefault(end, []).append(seq)
        for end, found in by_end.items():
            wire.ask("extend_leases", end, Ints(found))
        return rows

    return rest


def release_slots(wire: Wire, qs: Ints, groups: Blobs, seqs: Ints, most: int) -> Rest:
    left = {(q, group, seq) for q, group, seq in zip(qs.values, groups.values, seqs.values, strict=True)}
    names = sorted({(q, group) for q, group, _ in left})
    looked = select_slots(wire, Ints(q for q, _ in names), Blobs(group for _, group in names))

    def rest() -> Rows:
        rows = looked()
        over = [(q, group, seq) for q, group, *_, seq in rows if (q, group, seq) in left]
        _leave(wire, over)
        room: dict[tuple[int, bytes], int] = {}
        has_group_rate: set[tuple[int, bytes]] = set()
        for q, group, places, group_rate, _, seq in rows:
            if group_rate is not None:
                has_group_rate.add((q, group))
                continue
            kept = seq is not None and (q, group, seq) not in left
            room[q, group] = room.get((q, group), max(places or 0, 1)) - kept
        waits = has_group_rate.intersection((q, group) for q, group, _ in over)
        nobody = [(None, q, None, None, None, group, *[None] * 5) for q, group in sorted(waits)]
        return _next_in_group(wire, [(name, min(free, most)) for name, free in room.items() if free > 0]) + nobody

    return rest


def _leave(wire: Wire, slots: Sequence[tuple[int, bytes, int]]) -> None:
    for q, found in by_queue((q, (group, seq)) for q, group, seq in slots).items():
        wire.ask("delete_slots", q, Blobs(group for group, _ in found), Ints(seq for _, seq in found))


def delete_slots(wire: Wire, qs: Ints, groups: Blobs, seqs: Ints) -> Rest:
    _leave(wire, list(zip(qs.values, groups.values, seqs.values, strict=True)))  # type: ignore[arg-type]  # none is None
    return nothing


def next_in_group(wire: Wire, qs: Ints, groups: Blobs, rooms: Ints) -> Rest:
    """Who is next in groups with a pace; they leave held."""
    names = zip(qs.values, groups.values, strict=True)
    return lambda: _next_in_group(wire, list(zip(names, rooms.values, strict=True)))


def _next_in_group(wire: Wire, rooms: Sequence[tuple[Any, Any]]) -> Rows:
    """(card, run_at) of the next of each group, so many; they leave held."""
    asked = [wire.ask("next_in_group", *name, free) for name, free in rooms]
    nexts = Ints(seq for one in asked for (seq,) in one.get())
    out, messages = wire.ask("remove_held", nexts), wire.ask("select_rows", nexts)
    waited = {seq: (attempts, run_at) for seq, attempts, run_at in out.get()}
    rows = []
    for seq, q, _, *message in sorted(messages.get()):
        if seq in waited:
            attempts, run_at = waited[seq]
            rows.append((seq, q, attempts, *message, run_at))
    return rows


def select_group_rates(wire: Wire, qs: Ints, groups: Blobs) -> Rest:
    """Rows (q, lane, spent, seq that is leased), once without seq where none is."""
    asked = []
    for q, found in by_queue(zip(qs.values, groups.values, strict=True)).items():
        names = Blobs(found)
        asked.append(
            (q, names.values, wire.ask("select_group_rates", q, names), wire.ask("select_leased_slots", q, names))
        )

    def rest() -> Rows:
        rows: list[Any] = []
        for q, names, spent, leased in asked:
            known = dict(spent.get())
            rows += [(q, group, known.get(group), None) for group in names]
            rows += [(q, group, known.get(group), seq) for group, seq in leased.get()]
        return rows

    return rest


def select_slots(wire: Wire, qs: Ints, groups: Blobs) -> Rest:
    """Rows (q, lane, places, pace, burst, seq), once without seq where nobody has a place."""
    asked = [
        (
            q,
            found,
            wire.ask("select_group_limits", q),
            wire.ask("select_slots", q, Blobs(found)),
        )
        for q, found in by_queue(zip(qs.values, groups.values, strict=True)).items()
    ]

    def rest() -> Rows:
        rows = []
        for q, names, places, slots in asked:
            (known,) = places.get()
            taken = [(q, group, *known, seq) for group, seq in slots.get()]
            seen = {group for _, group, *_ in taken}
            rows += [*taken, *((q, group, *known, None) for group in names if group not in seen)]
        return rows

    return rest
