"""One commit under way: the clock reading, the numbers given out, the counts that change, the journal it will write.

The operations (one file each) do their work through it; `finish` writes what they have in common, once per commit.
Everything is for batches: a statement carries arrays, whatever their length.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from typing import Any
from uuid import UUID

from tampu.engines.commit import CommitState, expired_leases
from tampu.engines.encoding import pack_seqs, unpack_seqs
from tampu.engines.sql.db import Blobs, Db, Ints
from tampu.engines.sql.fair import FairTurns
from tampu.engines.sql.ids import BLOCK
from tampu.engines.sql.journal_record import Record
from tampu.engines.sql.locks import Locks
from tampu.engines.sql.message_row import MessageRow
from tampu.engines.sql.queue_registry import QueueRegistry


class NotYet(Exception):
    """What was sent ahead came too early: the commit begins again without."""


class Commit(CommitState[QueueRegistry, Record]):
    def __init__(
        self,
        db: Db,
        registry: QueueRegistry,
        now: int,
        block: int | None = None,
        next: tuple[int | None, int | None, int | None] = (None, None, None),
        sent: Any = None,
    ) -> None:
        super().__init__(registry, Record)
        self.db = db
        self.next = next
        """When the next delay, lease and expiry were due as the commit began."""
        self.now = now
        self.stamp = registry.stamp = max(registry.stamp, now // 1000)
        self.ahead = self.stamp - now // 1000 or None
        self.sent = sent
        """A statement of the verb's that was sent with the beginning (see `claim.Sent`, `settle.Sent`)."""
        self.locks = Locks(db)
        self.swept = False
        """It sweeps: what somebody has locked is not waited for."""
        self.deferred: list[Callable[[], None]] = []
        """What can be done while the server commits: filling the replies."""
        self.taken = 0
        """How many were claimed."""
        self.named: dict[int, tuple[str, str]] = {}
        """Queues that became ready, by number: their names, for those who wait."""
        self._turns: FairTurns | None = None
        self._block = range(block, block + BLOCK) if block is not None else range(0)
        self._claims: list[tuple[int, int, bytes]] = []
        self._watching: list[tuple[int, int, int]] = []
        """(until, lease, messages) of rows for the reaper."""
        self._settled: dict[int, int] = {}
        """By claim, the leases that ended."""
        self._left: set[int] = set()
        """Claims whose row is gone already."""

    # -- numbers, queues, counts

    def numbers(self, count: int) -> list[int]:
        """So many fresh, growing sequence numbers."""
        if count <= len(self._block):
            taken, self._block = self._block[:count], self._block[count:]
            return list(taken)
        # What is left of a block is dropped: numbers of a commit grow.
        found: list[int] = []
        for (first,) in self.db.rows("allocate_numbers", -(-count // BLOCK)):
            self._block = range(first, first + BLOCK)
            found.extend(self._block)
        self._block = range(found[count - 1] + 1, found[-1] + 1)
        return found[:count]

    def queue(self, tenant: str, name: str) -> int:
        """The number of a queue, made if it is new."""
        q = self.registry.number(self.db, tenant, name)
        if q is None:
            q = int(self.db.value("create_queue", tenant, name))
            self.registry.learn(q, tenant, name)
            self._new_queues.append(q)
        return q

    def tally(self, q: int) -> dict[int, int]:
        """Messages by state number, with what this commit changed."""
        counts = dict.fromkeys(range(8), 0)
        counts.update(self.db.rows("count_by_state", q))
        for kind, delta in self.changes(q):
            counts[kind] += delta
        return counts

    def count_all(self, messages: Iterable[MessageRow], kind: int, delta: int) -> None:
        for message in messages:
            self.count(message.q, kind, delta)

    def id(self, seq: int, stamp: int, own: UUID | None) -> str:
        return self.registry.id.of(stamp, seq) if own is None else str(own)

    @property
    def turns(self) -> FairTurns:
        """The turns of groups in fair queues; most commits give none."""
        if self._turns is None:
            self._turns = FairTurns(self.db, self.registry, self.locks)
        return self._turns

    # -- claims

    def claimed(self, until: int, lease: int, seqs: Sequence[int]) -> None:
        """Have the reaper look at a fresh claim when its time has come."""
        self._claims.append((until, lease, pack_seqs(seqs)))
        self.took(until, lease, len(seqs))

    def took(self, until: int, lease: int, count: int) -> None:
        """Note a claim whose row is written, or will be."""
        self._watching.append((until, lease, count))
        self.taken += count
        self.falls_due(until)

    def settled(self, lease: int, count: int, *, left: bool = False) -> None:
        """Leases of a claim ended; ``left``: and with them went its row."""
        self._settled[lease] = self._settled.get(lease, 0) + count
        if left:
            self._left.add(lease)

    def landed(self) -> None:
        """It has happened, whatever becomes of the answer."""
        self.registry.watched.landed(self.now, self._watching, self._settled)

    def watch_rest(self, until: int, lease: int, seqs: Sequence[int]) -> None:
        """Have the reaper look at the rest of a claim, of which it has looked at some, and whose row is gone."""
        self._claims.append((until, lease, pack_seqs(seqs)))
        self.falls_due(until)

    def watch(self, leases: Sequence[tuple[int, int, Sequence[int]]]) -> None:
        """(until, lease, seqs): have the reaper look at these messages of claims then too."""
        if leases:
            self.db.send(
                "schedule_reap",
                Ints(until for until, _, _ in leases),
                Ints(lease for _, lease, _ in leases),
                Blobs(struct.pack(f">{len(seqs)}q", *seqs) for _, _, seqs in leases),
            )
            self._watching.extend((until, lease, 0) for until, lease, _ in leases)
            self.falls_due(min(until for until, _, _ in leases))

    # -- journal

    def note(
        self, verb: str, state: int | None, message: MessageRow, worker: str | None = None, detail: str | None = None
    ) -> None:
        if message.seq in self._noted:
            self.begin_record_group()
        self._noted.add(message.seq)
        self.record(verb, message.q, state, worker).add(
            message.seq, message.stamp, message.attempts, message.own, detail
        )

    # -- finishing

    def finish(self) -> None:
        if self._turns is not None:
            self._turns.keep()
        told = [(key, record) for key, record in self.journal_records() if record.seqs]
        changes = [(q, kind, delta) for (q, kind), delta in self._deltas.items() if delta]
        if told or changes or self._endings or self._claims:
            ends = list(self._endings.items())
            self.db.send(
                "write_commit",
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
        over = [(self.registry.watched.rest(*one), one[0]) for one in self._settled.items() if one[0] not in self._left]
        gone = sorted((until, lease) for until, lease in over if until is not None)
        if gone:
            self.db.send("delete_settled_claims", Ints(until for until, _ in gone), Ints(lease for _, lease in gone))
        self.leases_expired = expired_leases(told)
        if self.ready or self.leases_expired:
            self.named = {q: self.registry.name(self.db, q) for q in (*self.ready, *self.leases_expired)}


def unpack_claim(raw: bytes) -> list[int]:
    """The numbers of a claim's row: what `pack_seqs` wrote, and eight bytes for each that was added by `watch`."""
    if len(raw) % 8:
        return [*unpack_seqs(raw[:20]), *struct.unpack(f">{(len(raw) - 20) // 8}q", raw[20:])]
    return list(struct.unpack(f">{len(raw) // 8}q", raw))
