"""State of one commit: its time, its sequence numbers, changed counts, and the journal records it will write.

Verbs (one file each) work on it. `finish` writes what they have in common, once per commit. Statements always take
arrays, whether for one message or thousands.
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


class SentTooEarly(Exception):
    """A statement was sent ahead, but something must run before it. The commit starts again without sending ahead."""


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
        """When the next delay, lease and expiry are due, read at the start of the commit."""
        self.now = now
        self.stamp = registry.stamp = max(registry.stamp, now // 1000)
        self.ahead = self.stamp - now // 1000 or None
        self.sent = sent
        """A statement that was sent with the beginning of the commit (`claim.Sent` or `settle.Sent`)."""
        self.locks = Locks(db)
        self.swept = False
        """This commit sweeps. It must not wait for rows that others have locked."""
        self.deferred: list[Callable[[], None]] = []
        """Work to do while the server commits: building the replies."""
        self.taken = 0
        """Number of messages claimed."""
        self.named: dict[int, tuple[str, str]] = {}
        """(tenant, name) of queues with new ready messages, by number, for waking waiting claims."""
        self._turns: FairTurns | None = None
        self._block = range(block, block + BLOCK) if block is not None else range(0)
        self._claims: list[tuple[int, int, bytes]] = []
        self._reap_rows: list[tuple[int, int, int]] = []
        """(until, lease, number of messages) of each row written for the reaper."""
        self._settled: dict[int, int] = {}
        """Number of leases that ended, by claim."""
        self._deleted_claims: set[int] = set()
        """Claims whose row was deleted already."""

    # -- numbers, queues, counts

    def numbers(self, count: int) -> list[int]:
        """``count`` new sequence numbers, ascending."""
        if count <= len(self._block):
            taken, self._block = self._block[:count], self._block[count:]
            return list(taken)
        # The rest of the old block is dropped, because the numbers of a commit must ascend.
        found: list[int] = []
        for (first,) in self.db.rows("allocate_numbers", -(-count // BLOCK)):
            self._block = range(first, first + BLOCK)
            found.extend(self._block)
        self._block = range(found[count - 1] + 1, found[-1] + 1)
        return found[:count]

    def queue(self, tenant: str, name: str) -> int:
        """The number of a queue, which is created if it does not exist."""
        q = self.registry.number(self.db, tenant, name)
        if q is None:
            q = int(self.db.value("create_queue", tenant, name))
            self.registry.learn(q, tenant, name)
            self._new_queues.append(q)
        return q

    def tally(self, q: int) -> dict[int, int]:
        """Number of messages by state number, including the changes of this commit."""
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
        """The turns of groups in fair queues; made on first use, since most commits need none."""
        if self._turns is None:
            self._turns = FairTurns(self.db, self.registry, self.locks)
        return self._turns

    # -- claims

    def add_claim(self, until: int, lease: int, seqs: Sequence[int]) -> None:
        """Add a new claim, with a row for the reaper."""
        self._claims.append((until, lease, pack_seqs(seqs)))
        self.note_claim(until, lease, len(seqs))

    def note_claim(self, until: int, lease: int, count: int) -> None:
        """Count a new claim whose row for the reaper is written elsewhere."""
        self._reap_rows.append((until, lease, count))
        self.taken += count
        self.falls_due(until)

    def settled(self, lease: int, count: int, *, left: bool = False) -> None:
        """Count leases of a claim that ended. ``left``: the claim's row was deleted too."""
        self._settled[lease] = self._settled.get(lease, 0) + count
        if left:
            self._deleted_claims.add(lease)

    def committed(self) -> None:
        """The commit succeeded: update what this process remembers of open claims."""
        self.registry.open_claims.committed(self.now, self._reap_rows, self._settled)

    def schedule_reap_rest(self, until: int, lease: int, seqs: Sequence[int]) -> None:
        """Write a row for the messages of a claim that the reaper has not checked yet; it deleted the old row."""
        self._claims.append((until, lease, pack_seqs(seqs)))
        self.falls_due(until)

    def schedule_reap(self, leases: Sequence[tuple[int, int, Sequence[int]]]) -> None:
        """(until, lease, seqs): have the reaper check these messages at that time too."""
        if leases:
            self.db.send(
                "schedule_reap",
                Ints(until for until, _, _ in leases),
                Ints(lease for _, lease, _ in leases),
                Blobs(struct.pack(f">{len(seqs)}q", *seqs) for _, _, seqs in leases),
            )
            self._reap_rows.extend((until, lease, 0) for until, lease, _ in leases)
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
        records = [(key, record) for key, record in self.journal_records() if record.seqs]
        changes = [(q, kind, delta) for (q, kind), delta in self._deltas.items() if delta]
        if records or changes or self._endings or self._claims:
            ends = list(self._endings.items())
            self.db.send(
                "write_commit",
                self.now,
                Ints(len(record.seqs) for _, record in records),
                Ints(q for (_, q, _, _), _ in records),
                Blobs(record.packed(verb, state, worker) for (verb, _, state, worker), record in records),
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
        until_if_complete = self.registry.open_claims.until_if_complete
        settled = [(lease, count) for lease, count in self._settled.items() if lease not in self._deleted_claims]
        over = [(until_if_complete(lease, count), lease) for lease, count in settled]
        gone = sorted((until, lease) for until, lease in over if until is not None)
        if gone:
            self.db.send("delete_settled_claims", Ints(until for until, _ in gone), Ints(lease for _, lease in gone))
        self.leases_expired = expired_leases(records)
        if self.ready or self.leases_expired:
            self.named = {q: self.registry.name(self.db, q) for q in (*self.ready, *self.leases_expired)}


def unpack_claim(raw: bytes) -> list[int]:
    """The seqs in a claim's row: what `pack_seqs` wrote, then eight bytes for each that `schedule_reap` added."""
    if len(raw) % 8:
        return [*unpack_seqs(raw[:20]), *struct.unpack(f">{(len(raw) - 20) // 8}q", raw[20:])]
    return list(struct.unpack(f">{len(raw) // 8}q", raw))
