"""State of one commit: its time, its sequence numbers, changed counts, and the journal records it will write.

Verbs (one file each) work on it. `finish` writes what they have in common, once per commit. Statements always take
arrays, whether for one message or thousands.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from tampu.engines.encoding import DEAD, Record, id_text, pack_seqs, unpack_seqs
from tampu.engines.port import Call, Listener, Together
from tampu.engines.sql.db import Blobs, Db, Ints, Values
from tampu.engines.sql.locks import Locks
from tampu.engines.sql.queue_registry import QueueRegistry
from tampu.engines.sql.rules.fair import FairTurns
from tampu.engines.sql.rules.message_row import MessageRow
from tampu.engines.units import Names, carry_out_units
from tampu.model.errors import TampuError
from tampu.model.times import SECOND

BLOCK = 1024
"""Numbers in one block: the INCREMENT of the sequence."""
_SOON = SECOND
"""Maintenance checks this often anyway; only what is due sooner needs a wake-up."""


class Wakeup(Protocol):
    """Tells other processes that messages are ready, and calls back when they say so."""

    @property
    def notify(self) -> Callable[[], None] | None:
        """Tells the others; None if they find out by themselves."""
        ...

    def close(self) -> None: ...


class SentTooEarly(Exception):
    """A statement was sent ahead, but something must run before it. The commit starts again without sending ahead."""


class Commit:
    """What the verbs of a commit gather."""

    due: int | None = None
    """The earliest time at which something this commit wrote is due."""
    swept = False
    """This commit sweeps. It must not wait for rows that others have locked."""
    taken = 0
    """Number of messages claimed."""
    _turns: FairTurns | None = None

    def __init__(
        self,
        db: Db,
        registry: QueueRegistry,
        now: int,
        block: int | None = None,
        next: tuple[int | None, int | None, int | None] = (None, None, None),
        sent: Any = None,
        locks: Locks | None = None,
    ) -> None:
        self.registry = registry
        self.ready: dict[int, int] = {}
        """How many messages became ready, by queue."""
        self.leases_expired: dict[int, tuple[int, int]] = {}
        """Expired leases by queue: how many messages are ready again, and how many are dead."""
        self.waits: dict[int, int] = {}
        """Until when messages that got a slot in this commit wait, for their time or for a token."""
        self._deltas: dict[tuple[int, int], int] = {}
        self._endings: dict[tuple[int, int], list[int]] = {}
        self._records: dict[tuple[Any, ...], Record] = {}
        self._noted: set[int] = set()
        self._earlier_records: list[tuple[tuple[Any, ...], Record]] = []
        self._new_queues: list[int] = []
        self.db = db
        self._next = next
        self.now = now
        self.stamp = registry.stamp = max(registry.stamp, now // 1000)
        self.ahead = self.stamp - now // 1000 or None
        self.sent = sent
        """A statement that was sent with the beginning of the commit (`claim.Sent` or `settle.Sent`)."""
        self._locks = locks
        self.deferred: list[Callable[[], None]] = []
        """Work to do while the server commits: building the replies."""
        self.named: dict[int, tuple[str, str]] = {}
        """(tenant, name) of queues with new ready messages, by number, for waking waiting claims."""
        self._block = range(block, block + BLOCK) if block is not None else range(0)
        self._claims: list[tuple[int, int, bytes]] = []
        self._reap_rows: list[tuple[int, int, int]] = []
        """(until, lease, number of messages) of each row written for the reaper."""
        self._settled: dict[int, int] = {}
        """Number of leases that ended, by claim."""
        self._deleted_claims: set[int] = set()
        """Claims whose row was deleted already."""

    @property
    def next(self) -> tuple[int | None, int | None, int | None]:
        """When the next delay, lease and expiry are due."""
        return self._next

    # -- numbers, queues, counts

    def forget_new_queues(self, keep: int = 0) -> None:
        """After a rollback: forget the queues created in this commit, except the first ``keep``."""
        for q in self._new_queues[keep:]:
            self.registry.forget(q)
        del self._new_queues[keep:]

    def count(self, q: int, kind: int, delta: int) -> None:
        self._deltas[q, kind] = self._deltas.get((q, kind), 0) + delta

    def changes(self, q: int) -> list[tuple[int, int]]:
        """(state number, change of its count) of a queue."""
        return [(kind, delta) for (owner, kind), delta in self._deltas.items() if owner == q]

    def ended(self, q: int, state: int, seqs: list[int]) -> None:
        """Note messages of one queue that have ended and whose rows are written."""
        self.count(q, state, len(seqs))
        self._endings.setdefault((q, state), []).extend(seqs)

    def numbers(self, count: int) -> Sequence[int]:
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
        q = self.registry.numbers.get((tenant, name)) or self.registry.number(self.db, tenant, name)
        if q is None:
            q = int(self.db.value("create_queue", tenant, name))
            self.registry.learn(q, tenant, name)
            self._new_queues.append(q)
        return q

    def counts_by_state(self, q: int) -> dict[int, int]:
        """Number of messages by state number, including the changes of this commit."""
        counts = dict.fromkeys(range(8), 0)
        counts.update(self.db.rows("count_by_state", q))
        for kind, delta in self.changes(q):
            counts[kind] += delta
        return counts

    def count_all(self, messages: Iterable[MessageRow], kind: int, delta: int) -> None:
        for message in messages:
            self.count(message.q, kind, delta)

    def id(self, seq: int, stamp: int, own: bytes | None) -> str:
        return self.registry.id.of(stamp, seq) if own is None else id_text(own)

    @property
    def locks(self) -> Locks:
        """The locks of this commit; made on first use."""
        if self._locks is None:
            self._locks = Locks(self.db)
        return self._locks

    @property
    def turns(self) -> FairTurns:
        """The turns of groups in fair queues; made on first use, since most commits need none."""
        if self._turns is None:
            self._turns = FairTurns(self.db, self.registry, self.locks)
        return self._turns

    # -- wake-ups

    def became_ready(self, q: int, count: int) -> None:
        self.ready[q] = self.ready.get(q, 0) + count

    def falls_due(self, at: int) -> None:
        if self.due is None or at < self.due:
            self.due = at

    def announce(self, wakeup: Wakeup | None, listener: Listener | None) -> None:
        """After the commit: wake waiting claims, in this process and in others."""
        notify = None if wakeup is None else wakeup.notify
        if notify is not None and (self.ready or (self.due is not None and self.due < self.now + _SOON)):
            notify()
        if listener is not None:
            if self.due is not None:
                listener.due(self.due)
            if self.ready:
                listener.ready({self.named[q]: n for q, n in self.ready.items()})
            if self.leases_expired:
                listener.leases_expired({self.named[q]: counts for q, counts in self.leases_expired.items()})

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
        if self._reap_rows or self._settled:
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
                Values("iib", [(until, lease, struct.pack(f">{len(seqs)}q", *seqs)) for until, lease, seqs in leases]),
            )
            self._reap_rows.extend((until, lease, 0) for until, lease, _ in leases)
            self.falls_due(min(until for until, _, _ in leases))

    # -- journal

    def record(self, verb: str, q: int, state: int | None, worker: str | None = None) -> Record:
        """The journal record of this commit for a verb, queue, state and worker."""
        key = (verb, q, state, worker)
        found = self._records.get(key)
        if found is None:
            found = self._records[key] = self.registry.record()
        return found

    def begin_record_group(self) -> None:
        """Journal what follows after all that was recorded so far. The last transition of a message stays its last."""
        self._earlier_records.extend(self._records.items())
        self._records, self._noted = {}, set()

    def journal_records(self) -> list[tuple[tuple[Any, ...], Record]]:
        """((verb, queue, state, worker), record), in the order to be written."""
        return [*self._earlier_records, *self._records.items()]

    def note(
        self,
        verb: str,
        state: int | None,
        message: MessageRow,
        worker: str | None = None,
        detail: str | None = None,
        type: str | None = None,
    ) -> None:
        if message.seq in self._noted:
            self.begin_record_group()
        self._noted.add(message.seq)
        record = self.record(verb, message.q, state, worker)
        record.add(message.seq, message.stamp, message.attempts, message.own, detail)
        if type is not None:
            record.types.append(type)

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
            self.db.send("delete_settled_claims", Values("ii", gone))
        self.leases_expired = expired_leases(records)
        self._name_queues()

    def _name_queues(self) -> None:
        if self.ready or self.leases_expired:
            names = self.registry.names
            self.named = {
                q: names.get(q) or self.registry.name(self.db, q) for q in (*self.ready, *self.leases_expired)
            }


def expired_leases(records: Iterable[tuple[tuple[Any, ...], Any]]) -> dict[int, tuple[int, int]]:
    """By queue, how many messages the reaper made ready again, and how many dead, in a commit."""
    found: dict[int, tuple[int, int]] = {}
    for (verb, q, state, _), record in records:
        if verb == "reap":
            back, dead = found.get(q, (0, 0))
            count = len(record.seqs)
            found[q] = (back, dead + count) if state == DEAD else (back + count, dead)
    return found


def carry_out(
    verbs: Mapping[type[Any], Callable[[Any, Any], Sequence[Any]]],
    commit: Commit,
    calls: Sequence[Call],
    names: Names,
    check: Callable[[Sequence[int], Sequence[Any]], None] | None = None,
) -> list[Any | TampuError]:
    """Run each verb once, in the order of ``verbs``, over all its calls. Replies are in the order of the calls.

    ``check`` is called after each verb with the indexes of its calls, and the replies so far.
    """
    if len(calls) == 1 and type(calls[0]) is not Together and check is None:
        return list(verbs[type(calls[0])](commit, calls))
    replies: list[Any] = [None] * len(calls)
    by_kind: dict[type[Any], list[int]] = {}
    for i, call in enumerate(calls):
        by_kind.setdefault(type(call), []).append(i)
    if Together in by_kind:
        return carry_out_units(
            lambda members, check: carry_out(verbs, commit, members, names, check), names, commit, calls
        )
    for kind, verb in verbs.items():
        indexes = by_kind.get(kind)
        if indexes:
            for i, reply in zip(indexes, verb(commit, [calls[i] for i in indexes]), strict=True):
                replies[i] = reply
            if check is not None:
                check(indexes, replies)
            commit.begin_record_group()
    return replies


def unpack_claim(raw: bytes) -> list[int]:
    """The seqs in a claim's row: what `pack_seqs` wrote, then eight bytes for each that `schedule_reap` added."""
    if len(raw) % 8:
        return [*unpack_seqs(raw[:20]), *struct.unpack(f">{(len(raw) - 20) // 8}q", raw[20:])]
    return list(struct.unpack(f">{len(raw) // 8}q", raw))
