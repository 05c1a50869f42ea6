"""One commit under way: the clock reading, the numbers given out, the counts that change, the journal it will write.

The operations (one file each) do their work through it; `finish` writes what they have in common, once per commit.
Everything is for batches: a statement carries arrays, whatever their length.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from tampu.engines.postgres.ids import BLOCK, Ids
from tampu.engines.postgres.record import Record
from tampu.engines.postgres.statements import Blobs, Db, Ints
from tampu.engines.sqlite.codes import DELAYED, HELD, READY, pack_seqs, unpack_seqs


class Card(NamedTuple):
    """What a transition must know of a message; statements answer with these columns first."""

    seq: int
    q: int
    attempts: int
    stamp: int
    own: UUID | None
    lane: bytes | None
    rank: int
    max_attempts: int
    expires: int | None
    named: bool
    """It has a key."""

    @classmethod
    def of(cls, row: Sequence[Any]) -> Card:
        return cls(*row[:10])


class NotYet(Exception):
    """What was sent ahead came too early: the commit begins again without."""


class House:
    """What is true of a schema for good: the tail of its ids and the numbers of its queues."""

    def __init__(self, tail: int, stamp: int = 0) -> None:
        self.tail = tail
        self.id = Ids(tail)
        self.stamp = stamp
        """The newest id's millisecond that this process knows of: ids grow, also when the clock goes back."""
        self.numbers: dict[tuple[str, str], int] = {}
        self.names: dict[int, tuple[str, str]] = {}
        self.expects_due = True
        """Something may be due soon: a claim must look first."""

    def learn(self, q: int, tenant: str, name: str) -> None:
        self.names[q] = (tenant, name)
        self.numbers[tenant, name] = q

    def number(self, db: Db, tenant: str, name: str) -> int | None:
        """The number of a queue; None if there is none of that name."""
        q = self.numbers.get((tenant, name))
        if q is None:
            row = db.row("queue_number", tenant, name)
            if row is None:
                return None
            q = int(row[0])
            self.learn(q, tenant, name)
        return q

    def name(self, db: Db, q: int) -> tuple[str, str]:
        """(tenant, name) of a queue number."""
        found = self.names.get(q)
        if found is None:
            self.learn(q, *db.row("queue_name", q))
            found = self.names[q]
        return found


class Commit:
    def __init__(
        self,
        db: Db,
        house: House,
        now: int,
        block: int | None = None,
        next: tuple[int | None, int | None, int | None] = (None, None, None),
        sent: Any = None,
    ) -> None:
        self.db = db
        self.next = next
        """When the next delay, lease and expiry were due as the commit began."""
        self.house = house
        self.now = now
        self.stamp = house.stamp = max(house.stamp, now // 1000)
        self.ahead = self.stamp - now // 1000 or None
        self.sent = sent
        """A statement of the verb's that was sent with the beginning (see `claim.Sent`, `settle.Sent`)."""
        self.deferred: list[Callable[[], None]] = []
        """What can be done while the server commits: filling the replies."""
        self.ready: dict[int, int] = {}
        """How many messages became ready, by queue."""
        self.due: int | None = None
        """The earliest time at which something this commit wrote is due."""
        self.named: dict[int, tuple[str, str]] = {}
        """Queues that became ready, by number: their names, for those who wait."""
        self._block = range(block, block + BLOCK) if block is not None else range(0)
        self._deltas: dict[tuple[int, int], int] = {}
        self._records: dict[tuple[Any, ...], Record] = {}
        self._noted: set[int] = set()
        self._told: list[tuple[tuple[Any, ...], Record]] = []
        self._endings: dict[tuple[int, int], list[int]] = {}
        self._claims: list[tuple[int, int, bytes]] = []
        self._new_queues: list[int] = []
        self._locked: set[bytes] = set()

    # -- numbers, queues, locks

    def numbers(self, count: int) -> list[int]:
        """So many fresh, growing sequence numbers."""
        if count <= len(self._block):
            taken, self._block = self._block[:count], self._block[count:]
            return list(taken)
        # What is left of a block is dropped: numbers of a commit grow.
        found: list[int] = []
        for (first,) in self.db.rows("numbers", -(-count // BLOCK)):
            self._block = range(first, first + BLOCK)
            found.extend(self._block)
        self._block = range(found[count - 1] + 1, found[-1] + 1)
        return found[:count]

    def queue(self, tenant: str, name: str) -> int:
        """The number of a queue, made if it is new."""
        q = self.house.number(self.db, tenant, name)
        if q is None:
            q = int(self.db.row("queue_make", tenant, name)[0])
            self.house.learn(q, tenant, name)
            self._new_queues.append(q)
        return q

    def forget_new_queues(self) -> None:
        """After a rollback: the queues made in this commit do not exist."""
        for q in self._new_queues:
            self.house.numbers.pop(self.house.names.pop(q), None)
        self._new_queues.clear()

    def lock(self, names: Iterable[bytes]) -> None:
        """Nobody else looks at these until the end of the commit. One order for all of a call."""
        new = set(names) - self._locked
        if new:
            self.db.send("locks", Blobs(new))
            self._locked |= new

    def tally(self, q: int) -> dict[int, int]:
        """Messages by state number, with what this commit changed."""
        counts = dict.fromkeys(range(8), 0)
        counts.update(self.db.rows("tally", q))
        for (owner, kind), delta in self._deltas.items():
            if owner == q:
                counts[kind] += delta
        return counts

    def count(self, q: int, kind: int, delta: int) -> None:
        self._deltas[q, kind] = self._deltas.get((q, kind), 0) + delta

    def count_all(self, cards: Iterable[Card], kind: int, delta: int) -> None:
        for card in cards:
            self.count(card.q, kind, delta)

    def id(self, seq: int, stamp: int, own: UUID | None) -> str:
        return self.house.id.of(stamp, seq) if own is None else str(own)

    # -- moves shared by several operations

    def enter_ready(self, cards: Sequence[Card], leases: Sequence[int | None]) -> None:
        """Put messages at the back of their rank, in this order."""
        if not cards:
            return
        self.db.send(
            "enter_ready",
            Ints(card.rank for card in cards),
            Ints(self.numbers(len(cards))),
            Ints(card.seq for card in cards),
            Ints(leases),
            Ints(card.q for card in cards),
            Ints(card.attempts for card in cards),
        )
        for card in cards:
            self.count(card.q, READY, 1)
            self.became_ready(card.q, 1)

    def became_ready(self, q: int, count: int) -> None:
        self.ready[q] = self.ready.get(q, 0) + count

    def enter_delayed(self, cards: Sequence[Card], times: Sequence[int], leases: Sequence[int | None]) -> None:
        if not cards:
            return
        self.db.send(
            "enter_delayed",
            Ints(card.seq for card in cards),
            Ints(times),
            Ints(leases),
            Ints(card.q for card in cards),
            Ints(card.attempts for card in cards),
        )
        self.count_all(cards, DELAYED, 1)
        self.falls_due(min(times))

    def hold(self, held: Sequence[tuple[Card, int | None, bytes | None, bytes]]) -> None:
        """Rows are (card, run_at, the lane it waits for, reason)."""
        if not held:
            return
        self.db.send(
            "hold",
            Ints(card.seq for card, _, _, _ in held),
            Ints(run_at for _, run_at, _, _ in held),
            Ints(card.q for card, _, _, _ in held),
            Ints(card.attempts for card, _, _, _ in held),
            Blobs(lane for _, _, lane, _ in held),
            Blobs(reason for _, _, _, reason in held),
        )
        self.count_all((card for card, _, _, _ in held), HELD, 1)

    def start(self, waiting: Sequence[tuple[Card, int | None]]) -> list[int]:
        """Let messages go to ready, or to delayed if their time has not come; the states they are in then."""
        later = [(card, run_at) for card, run_at in waiting if run_at is not None and run_at > self.now]
        at_once = [card for card, run_at in waiting if run_at is None or run_at <= self.now]
        self.enter_delayed([card for card, _ in later], [at for _, at in later], [None] * len(later))
        self.enter_ready(at_once, [None] * len(at_once))
        return [DELAYED if run_at is not None and run_at > self.now else READY for _, run_at in waiting]

    def admit(self, waiting: Sequence[tuple[Card, int | None]]) -> list[int]:
        """`start`, except for those of whose group another message goes first: held until their turn."""
        lanes = {(card.q, card.lane) for card, _ in waiting if card.lane is not None}
        if not lanes:
            return self.start(waiting)
        self.lock(lane_lock(self.house.name(self.db, q), lane) for q, lane in lanes if lane is not None)
        taken = {(q, lane) for q, lane in self.db.rows("known_lanes", *_columns(lanes))}
        held: list[tuple[Card, int | None, bytes | None, bytes]] = []
        going: list[tuple[Card, int | None]] = []
        seats: list[tuple[int, bytes, int]] = []
        for card, run_at in waiting:
            if card.lane is None:
                going.append((card, run_at))
            elif (card.q, card.lane) in taken:
                held.append((card, run_at, card.lane, b"group"))
            else:
                taken.add((card.q, card.lane))
                seats.append((card.q, card.lane, card.seq))
                going.append((card, run_at))
        self._seat(seats)
        self.hold(held)
        states = dict(zip([card.seq for card, _ in going], self.start(going), strict=True))
        return [states.get(card.seq, HELD) for card, _ in waiting]

    def _seat(self, seats: Sequence[tuple[int, bytes, int]]) -> None:
        if seats:
            self.db.send("seat_lanes", Ints(s[0] for s in seats), Blobs(s[1] for s in seats), Ints(s[2] for s in seats))

    def leave_lanes(self, over: Iterable[tuple[int, bytes | None, int]]) -> None:
        """(q, lane, seq) that have ended: the next of each group goes from held to ready, in this same commit."""
        ends = [(q, lane, seq) for q, lane, seq in over if lane is not None]
        if not ends:
            return
        self.lock(lane_lock(self.house.name(self.db, q), lane) for q, lane, _ in ends)
        rows = self.db.rows(
            "leave_lanes", Ints(e[0] for e in ends), Blobs(e[1] for e in ends), Ints(e[2] for e in ends)
        )
        next_ = [(Card.of(row), row[10]) for row in rows]
        self.count_all((card for card, _ in next_), HELD, -1)
        self._seat([(card.q, card.lane, card.seq) for card, _ in next_ if card.lane is not None])
        for (card, _), state in zip(next_, self.start(next_), strict=True):
            self.note("free", state, card)

    def end(self, state: int, cards: Sequence[Card], traces: Sequence[int | None]) -> None:
        """Messages that have left their index end as ``state``."""
        if not cards:
            return
        self.db.send(
            "end",
            self.now,
            Ints(card.seq for card in cards),
            Ints(traces),
            Ints(card.q for card in cards),
            Ints(card.attempts for card in cards),
            Ints([state] * len(cards)),
        )
        for card in cards:
            self.count(card.q, state, 1)
            self._endings.setdefault((card.q, state), []).append(card.seq)
        self.leave_lanes((card.q, card.lane, card.seq) for card in cards)

    def ended(self, q: int, state: int, seqs: Sequence[int]) -> None:
        """Note messages of one queue whose rows in `ended` are written."""
        self.count(q, state, len(seqs))
        self._endings.setdefault((q, state), []).extend(seqs)

    def claimed(self, until: int, lease: int, seqs: Sequence[int]) -> None:
        """Have the reaper look at a fresh claim when its time has come."""
        self._claims.append((until, lease, pack_seqs(seqs)))
        self.falls_due(until)

    def watch(self, leases: Sequence[tuple[int, int, Sequence[int]]]) -> None:
        """(until, lease, seqs): have the reaper look at these messages of claims then too."""
        if leases:
            self.db.send(
                "watch",
                Ints(until for until, _, _ in leases),
                Ints(lease for _, lease, _ in leases),
                Blobs(struct.pack(f">{len(seqs)}q", *seqs) for _, _, seqs in leases),
            )
            self.falls_due(min(until for until, _, _ in leases))

    def falls_due(self, at: int) -> None:
        if self.due is None or at < self.due:
            self.due = at

    def restore_marks(self, cards: Iterable[Card]) -> None:
        """Messages that wait again take their expiry back, and their key if no newer message has it."""
        marked = [card for card in cards if card.named or card.expires is not None]
        if marked:
            self.db.send("restore_marks", Ints(card.seq for card in marked))
            for card in marked:
                if card.expires is not None:
                    self.falls_due(card.expires)

    def drop_marks(self, seqs: Sequence[int]) -> None:
        """Messages that no longer wait give up their expiry and their key."""
        if seqs:
            self.db.send("drop_marks", Ints(seqs))

    def withdraw(self, seqs: Sequence[int]) -> dict[int, Card]:
        """Take waiting messages out of ready, delayed or held, with key and expiry; those that waited."""
        if not seqs:
            return {}
        rows = self.db.rows("withdraw", Ints(seqs))
        found = {row[0]: Card.of(row) for row in rows}
        for row in rows:
            self.count(row[1], row[10], -1)
        self.drop_marks([card.seq for card in found.values() if card.named or card.expires is not None])
        return found

    # -- journal

    def record(self, verb: str, q: int, state: int | None, worker: str | None = None) -> Record:
        """The journal record of this commit for a verb, queue, state and worker."""
        key = (verb, q, state, worker)
        found = self._records.get(key)
        if found is None:
            found = self._records[key] = Record()
        return found

    def note(
        self, verb: str, state: int | None, card: Card, worker: str | None = None, detail: str | None = None
    ) -> None:
        if card.seq in self._noted:
            self.turn_page()
        self._noted.add(card.seq)
        self.record(verb, card.q, state, worker).add(card.seq, card.stamp, card.attempts, card.own, detail)

    def turn_page(self) -> None:
        """What follows is journaled after what was so far: a message that moves twice ends where it moved last."""
        self._told.extend(self._records.items())
        self._records, self._noted = {}, set()

    # -- finishing

    def finish(self) -> None:
        told = [(key, record) for key, record in (*self._told, *self._records.items()) if record.seqs]
        changes = [(q, kind, delta) for (q, kind), delta in self._deltas.items() if delta]
        if told or changes or self._endings or self._claims:
            ends = list(self._endings.items())
            self.db.send(
                "finish",
                self.now,
                Ints(len(record.seqs) for _, record in told),
                Ints(q for (_, q, _, _), _ in told),
                Blobs(record.packed(verb, state, worker) for (verb, _, state, worker), record in told),
                Ints(q for q, _, _ in changes),
                Ints(kind for _, kind, _ in changes),
                Ints(delta for _, _, delta in changes),
                Ints(q for (q, _), _ in ends),
                Ints(state for (_, state), _ in ends),
                Blobs(pack_seqs(seqs) for _, seqs in ends),
                Ints(until for until, _, _ in self._claims),
                Ints(lease for _, lease, _ in self._claims),
                Blobs(seqs for _, _, seqs in self._claims),
            )
        if self.ready:
            self.named = {q: self.house.name(self.db, q) for q in self.ready}


def unpack_claim(raw: bytes) -> list[int]:
    """The numbers of a claim's row: what `pack_seqs` wrote, and eight bytes for each that was added by `watch`."""
    if len(raw) % 8:
        return [*unpack_seqs(raw[:20]), *struct.unpack(f">{(len(raw) - 20) // 8}q", raw[20:])]
    return list(struct.unpack(f">{len(raw) // 8}q", raw))


def lane_lock(queue: tuple[str, str], lane: bytes) -> bytes:
    """By the queue's tenant and name: it may not have a number yet."""
    return b"lane/%s/%s/%s" % (queue[0].encode(), queue[1].encode(), lane)


def queue_lock(tenant: str, name: str) -> bytes:
    return b"queue/%s/%s" % (tenant.encode(), name.encode())


def _columns(lanes: Iterable[tuple[int, bytes | None]]) -> tuple[Ints, Blobs]:
    pairs = sorted((q, lane) for q, lane in lanes if lane is not None)
    return Ints(q for q, _ in pairs), Blobs(lane for _, lane in pairs)
