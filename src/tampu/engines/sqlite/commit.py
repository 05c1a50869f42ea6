"""One running commit: its time, the sequence numbers it gives out, the counts it changes, the journal it will write.

The verbs (one file each) work through it. `finish` writes the counts and the journal, once per commit.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from tampu.engines.commit import CommitState, expired_leases
from tampu.engines.encoding import as_json, pack_seqs, unpack_seqs
from tampu.engines.groups import Limits
from tampu.engines.sqlite import ids
from tampu.engines.sqlite.fair import FairTurns
from tampu.engines.sqlite.queue_registry import QueueRegistry, find
from tampu.model.errors import TampuError

_pack = msgspec.msgpack.Encoder().encode


class Record:
    """What one verb did in one commit, column by column."""

    __slots__ = ("attempts", "details", "ids", "seqs", "types")

    def __init__(self) -> None:
        self.seqs: list[int] = []
        self.attempts: list[int] = []
        self.types: list[str] = []
        self.details: list[str | None] = []
        self.ids: dict[int, str] = {}
        """User-given ids of messages whose rows this commit removes."""

    def add(self, seq: int, attempt: int, detail: str | None = None) -> None:
        self.seqs.append(seq)
        self.attempts.append(attempt)
        if detail is not None or self.details:
            self.details.extend([None] * (len(self.seqs) - 1 - len(self.details)))
            self.details.append(detail)

    def extend(self, seqs: list[int], attempts: list[int], types: list[str] | None = None) -> None:
        self.seqs.extend(seqs)
        self.attempts.extend(attempts)
        if types is not None:
            self.types.extend(types)

    def has_own_id(self) -> bool:
        return any(map((1).__and__, self.seqs))

    def copy(self) -> Record:
        twin = Record()
        twin.seqs, twin.attempts = list(self.seqs), list(self.attempts)
        twin.types, twin.details, twin.ids = list(self.types), list(self.details), dict(self.ids)
        return twin


def pack_record(
    verb: str, state: int | None, worker: str | None, record: Record, own: list[str | None] | None
) -> bytes:
    """Pack a record for the journal. A column whose values are all the same is written as that one value.

    `journal.read` unpacks it.
    """
    return _pack(
        (
            verb,
            state,
            worker,
            pack_seqs(record.seqs),
            _folded(record.attempts),
            _folded(record.types) if record.types else None,
            record.details or None,
            own,
        )
    )


def _folded(values: list[Any]) -> Any:
    first = values[0]
    return first if values.count(first) == len(values) else values


class Commit(CommitState[QueueRegistry, Record]):
    def __init__(self, db: sqlite3.Connection, registry: QueueRegistry, now: int) -> None:
        super().__init__(registry, Record)
        self.db = db
        self.now = now
        self.limits: dict[int, Limits] = {}
        """Cached limits of groups, by queue (see `groups.limits_of`)."""
        self.slots: dict[tuple[int, str], int] = {}
        """Cached counts of taken slots, by queue and group (see `groups.taken_slots`)."""
        self._turns: FairTurns | None = None
        self._tallies: dict[int, list[int]] = {}
        self._own: dict[int, str] = {}
        counters = dict(db.execute("SELECT kind, n FROM tampu_counter WHERE q = 0"))
        self._last: int = counters[0]
        self._offset: int = counters[1]
        self._revision: int = counters[2]
        self._began = (self._last, self._offset, self._revision)

    # -- numbers and queues

    @property
    def began(self) -> tuple[int, int]:
        """(last number given out, end of the journal) before this commit."""
        return self._began[:2]

    def numbers(self, count: int) -> range:
        """``count`` new, growing sequence numbers."""
        first = max(self._last + ids.STEP, ids.floor(self.now)) & ~1
        self._last = first + (count - 1) * ids.STEP
        return range(first, self._last + 1, ids.STEP)

    def touch_documents(self) -> int:
        self._revision += 1
        return self._revision

    def start_journal(self, offset: int) -> bool:
        """Let an empty journal continue after an offset. False if it is not empty."""
        if self._offset or self._earlier_records or self._records:
            return False
        self._offset = offset
        return True

    def queue(self, tenant: str, name: str) -> int:
        """The number of a queue, which is created if it is new."""
        q = self.registry.numbers.get((tenant, name)) or self.registry.number(self.db, tenant, name)
        if q is None:
            q = self.db.execute("INSERT INTO tampu_queue (tenant, name) VALUES (?, ?)", (tenant, name)).lastrowid
            assert q is not None
            self.db.executemany("INSERT INTO tampu_counter VALUES (?, ?, 0)", [(q, kind) for kind in range(8)])
            self.registry.learn(q, tenant, name)
            self._new_queues.append(q)
        return q

    def tally(self, q: int) -> list[int]:
        """How many messages are in each state, by state number, with the changes of this commit."""
        if q not in self._tallies:
            rows = self.db.execute("SELECT n FROM tampu_counter WHERE q = ? ORDER BY kind", (q,))
            self._tallies[q] = [n for (n,) in rows]
        counts = list(self._tallies[q])
        for kind, delta in self.changes(q):
            counts[kind] += delta
        return counts

    @property
    def turns(self) -> FairTurns:
        """The ranks of groups in fair queues. Created when first used: most commits need none."""
        if self._turns is None:
            self._turns = FairTurns(self.db)
        return self._turns

    # -- messages by id

    def find(self, tenant: str, id: str) -> tuple[int, int] | None:
        """(seq, q) of a message of this tenant."""
        return find(self.db, self.registry, tenant, id)

    def id(self, seq: int) -> str:
        if ids.own_id(seq):
            if seq not in self._own:
                self.learn_ids([seq])
            return self._own[seq]
        return self.registry.id.of(seq)

    def learn_ids(self, seqs: Iterable[int]) -> None:
        """Look up the user-given ids among these messages with one statement, for `id`."""
        unknown = [seq for seq in seqs if seq & 1 and seq not in self._own]
        if unknown:
            found = self.db.execute(
                "SELECT m.seq, m.id FROM json_each(?) j CROSS JOIN tampu_message m ON m.seq = j.value",
                (as_json(unknown),),
            )
            self.know_ids(found)

    def know_ids(self, found: Iterable[tuple[int, bytes]]) -> None:
        """Cache user-given ids that were read with their messages."""
        self._own.update([(seq, ids.id_text(id)) for seq, id in found])

    # -- leases

    def schedule_reap(self, until: int, lease: int, seqs: Sequence[int]) -> None:
        """Let the reaper check these messages of a claim at that time."""
        row = self.db.execute("SELECT seqs FROM tampu_claim WHERE until = ? AND lease = ?", (until, lease)).fetchone()
        known = unpack_seqs(*row) if row else ()
        self.db.execute(
            "INSERT OR REPLACE INTO tampu_claim VALUES (?, ?, ?)",
            (until, lease, pack_seqs(list(dict.fromkeys((*known, *seqs))))),
        )
        self.falls_due(until)

    # -- journal

    def note(
        self,
        verb: str,
        q: int,
        state: int | None,
        seq: int,
        attempt: int,
        worker: str | None = None,
        detail: str | None = None,
    ) -> None:
        if seq in self._noted:
            self.begin_record_group()
        self._noted.add(seq)
        self.record(verb, q, state, worker).add(seq, attempt, detail)

    # -- trying and finishing

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """A savepoint. A refusal inside undoes what was done inside; the rest of the commit stays."""
        saved = (
            dict(self._deltas),
            {key: record.copy() for key, record in self._records.items()},
            set(self._noted),
            list(self._earlier_records),
            {key: list(seqs) for key, seqs in self._endings.items()},
            dict(self.ready),
            self.due,
            self._last,
            None if self._turns is None else self._turns.copy(),
        )
        made = len(self._new_queues)
        self.db.execute("SAVEPOINT tampu_attempt")
        try:
            yield
        except TampuError:
            self.db.execute("ROLLBACK TO tampu_attempt")
            self._deltas, self._records, self._noted, self._earlier_records = saved[:4]
            self._endings, self.ready, self.due, self._last, self._turns = saved[4:]
            self.forget_new_queues(made)
            self._own.clear()  # these sequence numbers will be given out again
            self.limits.clear()
            self.slots.clear()
            self.waits.clear()
            raise
        finally:
            if self.db.in_transaction:  # a full disk ends the transaction
                self.db.execute("RELEASE tampu_attempt")

    def finish(self) -> None:
        db = self.db
        if self._turns is not None:
            self._turns.keep()
        for (q, state), seqs in self._endings.items():
            db.execute(
                "INSERT INTO tampu_ending VALUES (?, ?, ?, ?, ?)",
                (q, state, self.numbers(1)[0], self.now, pack_seqs(seqs)),
            )
        records = self.journal_records()
        self.leases_expired = expired_leases(records)
        for (verb, q, state, worker), record in records:
            if record.seqs:
                own = None
                if record.has_own_id():
                    known = record.ids
                    self.learn_ids([seq for seq in record.seqs if seq not in known] if known else record.seqs)
                    own = [(known.get(seq) or self._own[seq]) if seq & 1 else None for seq in record.seqs]
                db.execute(
                    "INSERT INTO tampu_journal VALUES (?, ?, ?, ?, ?)",
                    (self._offset + 1, len(record.seqs), self.now, q, pack_record(verb, state, worker, record, own)),
                )
                self._offset += len(record.seqs)
        changes = [(delta, q, kind) for (q, kind), delta in self._deltas.items() if delta]
        changes += [
            (now - was, 0, kind)
            for kind, (now, was) in enumerate(zip((self._last, self._offset, self._revision), self._began, strict=True))
            if now != was
        ]
        if changes:
            db.executemany("UPDATE tampu_counter SET n = n + ? WHERE q = ? AND kind = ?", changes)
