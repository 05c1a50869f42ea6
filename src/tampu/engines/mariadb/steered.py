"""Moves that people make with single messages, and looks that are several statements."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tampu.engines.mariadb.arriving import enter_ready
from tampu.engines.mariadb.moving import Rest, by_queue, first, ints, left, with_attempts
from tampu.engines.mariadb.wire import Rows, Wire
from tampu.engines.sql.db import Ints, Uuids


def ask_cancel(wire: Wire, seqs: Ints) -> Rest:
    looked = wire.ask("ask_cancel_look", seqs)

    def rest() -> Rows:
        rows = looked.get()
        wire.ask("ask_cancel", Ints(row[0] for row in rows))
        return rows

    return rest


def free(wire: Wire, seqs: Ints) -> Rest:
    looked = wire.ask("free", seqs)

    def rest() -> Rows:
        rows = looked.get()
        wire.ask("unhold", Ints(row[0] for row in rows if not row[11]))
        return sorted(rows, key=first)

    return rest


def revive(wire: Wire, seqs: Ints, now: int, attempts: Ints) -> Rest:
    out = wire.ask("raise", seqs)
    given = dict(zip(seqs.values, attempts.values, strict=True))

    def rest() -> Rows:
        gone = Ints(row[0] for row in out.get())
        wire.ask("outlive", gone, now)
        for most in sorted({given[seq] or 0 for seq in gone.values}):
            wire.ask("allow_attempts", Ints(seq for seq in gone.values if given[seq] == most), most)
        return wire.ask("cards", gone).get()

    return rest


def withdraw(wire: Wire, seqs: Ints) -> Rest:
    looked = wire.ask("where_ready", seqs)

    def rest() -> Rows:
        cards = {row[0]: row for row in looked.get()}
        states: dict[int, tuple[int, int]] = {}
        ready = _out_of_ready(wire, cards.values())
        delayed, held = wire.ask("withdraw_delayed", seqs), wire.ask("unhold", seqs)
        for state, rows in ((0, ready()), (1, delayed.get()), (3, held.get())):
            states.update({row[0]: (row[1], state) for row in rows})
        return [(*with_attempts(cards[seq], attempts), state) for seq, (attempts, state) in states.items()]

    return rest


def lock_waiting(wire: Wire, seqs: Ints) -> Rest:
    looked = wire.ask("where_ready", seqs)

    def rest() -> Rows:
        cards = {row[0]: row[:10] for row in looked.get()}
        ready = wire.ask("lock_ready", *ints(_places(looked.get()), 3))
        asked = ready, wire.ask("lock_delayed", seqs), wire.ask("lock_held", seqs)
        return [cards[seq] for one in asked for (seq,) in one.get() if seq in cards]

    return rest


def _places(cards: Iterable[Any]) -> list[tuple[int, int, int]]:
    """(q, rank, pos) where these messages are in `ready`, if they are."""
    return sorted((card[1], card[10] or 0, card[0] if card[11] is None else card[11]) for card in cards)


def _out_of_ready(wire: Wire, cards: Iterable[Any]) -> Rest:
    """Delete the rows of `ready` where these messages are, if they are; what was deleted."""
    queues = {card[0]: card[1] for card in cards}
    out = wire.ask("withdraw_ready", *ints(_places(cards), 3))

    def rest() -> Rows:
        rows = out.get()
        left(wire, [(queues[row[0]], row[2], row[3]) for row in rows])
        placed = [(queues[row[0]], row[0]) for row in rows if row[2] or row[3] != row[0]]
        for q, found in by_queue(placed).items():
            wire.ask("leave_placed", q, Ints(row[1] for row in found))
        return rows

    return rest


def rerank(wire: Wire, q: int, seqs: Ints, places: Ints, ranks: Ints) -> Rest:
    """Ready messages whose place changes are taken out and put back at their position; the message has the new rank."""
    looked = wire.ask("where_ready", seqs)

    def rest() -> Rows:
        new = dict(zip(seqs.values, places.values, strict=True))
        moving = [row for row in looked.get() if (row[10] or 0) != new[row[0]]]
        out = _out_of_ready(wire, moving)()
        back = [(new[seq], pos, seq, lease, q, attempts) for seq, attempts, _, pos, lease in out]
        enter_ready(wire, *ints(back, 6))
        wire.ask("rerank", seqs, ranks)
        return []

    return rest


def load(wire: Wire, seqs: Ints) -> Rest:
    asked = wire.ask("load", seqs)

    def rest() -> Rows:
        found = {row[0]: (*row[:13], bool(row[13]), row[14]) for row in asked.get() if row[8] is not None}
        return [found[seq] for seq in seqs.values if seq in found]

    return rest


def still_ended(wire: Wire, seqs: Ints) -> Rest:
    asked = wire.ask("still_ended", seqs)

    def rest() -> Rows:
        found = {seq for (seq,) in asked.get()}
        return [(seq,) for seq in seqs.values if seq in found]

    return rest


def find(wire: Wire, tenant: str, seqs: Ints, stamps: Ints, ids: Uuids) -> Rest:
    made = wire.ask("find_made", tenant, Ints(seq for seq in seqs.values if seq is not None))
    given = wire.ask("find_given", tenant, ids)

    def rest() -> Rows:
        by_number = {(seq, stamp): (seq, q) for seq, q, stamp in made.get()}
        by_id = {id.bytes: (seq, q) for id, seq, q in given.get()}
        rows = []
        for n, (seq, stamp, id) in enumerate(zip(seqs.values, stamps.values, ids.values, strict=True), 1):
            place = by_number.get((seq, stamp)) or by_id.get(id or b"")
            if place is not None:
                rows.append((n, *place))
        return rows

    return rest


def stats(wire: Wire, tenant: str, queue: str | None, now: int | None) -> Rest:
    asked = wire.ask("stats_queues", tenant, queue, now)

    def rest() -> Rows:
        queues = asked.get()
        counts: dict[int, list[tuple[int | None, int]]] = {}
        for q, kind, n in wire.ask("stats_counts", Ints(row[0] for row in queues)).get():
            counts.setdefault(q, []).append((kind, n))
        return [
            (name, kind, n, oldest, at) for q, name, oldest, at in queues for kind, n in counts.get(q) or [(None, 0)]
        ]

    return rest
