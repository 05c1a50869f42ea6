"""One commit under way: the clock reading, the numbers given out, the counts that change, the journal it will write.

The operations (one file each) do their work through it; `finish` writes what they have in common, once per commit.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from tampu.engines.commit_state import CommitState
from tampu.engines.encoding import as_json, pack_seqs, unpack_seqs
from tampu.engines.groups import Limits
from tampu.engines.journal_pages import lapses
from tampu.engines.sqlite import ids
from tampu.engines.sqlite.fair import FairTurns
from tampu.engines.sqlite.journal import Record, pack_record
from tampu.engines.sqlite.queue_registry import QueueRegistry, find
from tampu.model.errors import TampuError


class Commit(CommitState[QueueRegistry, Record]):
    def __init__(self, db: sqlite3.Connection, registry: QueueRegistry, now: int) -> None:
        super().__init__(registry, Record)
        self.db = db
        self.now = now
        self.limits: dict[int, Limits] = {}
        """The limits of groups, by queue, as far as they were looked up (see `lanes.limits_of`)."""
        self.slots: dict[tuple[int, str], int] = {}
        """How many places of groups are taken, by queue and group, as far as they were counted (see `lanes`)."""
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
        """So many fresh, growing sequence numbers."""
        first = max(self._last + ids.STEP, ids.floor(self.now)) & ~1
        self._last = first + (count - 1) * ids.STEP
        return range(first, self._last + 1, ids.STEP)

    def touch_documents(self) -> int:
        self._revision += 1
        return self._revision

    def start_journal(self, offset: int) -> bool:
        """Let an empty journal go on after an offset; whether it was empty."""
        if self._offset or self._told or self._records:
            return False
        self._offset = offset
        return True

    def queue(self, tenant: str, name: str) -> int:
        """The number of a queue, made if it is new."""
        q = self.registry.numbers.get((tenant, name)) or self.registry.number(self.db, tenant, name)
        if q is None:
            q = self.db.execute("INSERT INTO tampu_queue (tenant, name) VALUES (?, ?)", (tenant, name)).lastrowid
            assert q is not None
            self.db.executemany("INSERT INTO tampu_counter VALUES (?, ?, 0)", [(q, kind) for kind in range(8)])
            self.registry.learn(q, tenant, name)
            self._new_queues.append(q)
        return q

    def tally(self, q: int) -> list[int]:
        """Messages by state number, with what this commit changed."""
        if q not in self._tallies:
            rows = self.db.execute("SELECT n FROM tampu_counter WHERE q = ? ORDER BY kind", (q,))
            self._tallies[q] = [row[0] for row in rows]
        counts = list(self._tallies[q])
        for kind, delta in self.changes(q):
            counts[kind] += delta
        return counts

    @property
    def turns(self) -> FairTurns:
        """The turns of groups in fair queues; most commits give none."""
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
        """Look up the ids of the user's own among these messages with one statement, for `id` to know."""
        unknown = [seq for seq in seqs if seq & 1 and seq not in self._own]
        if unknown:
            found = self.db.execute(
                "SELECT m.seq, m.id FROM json_each(?) j CROSS JOIN tampu_message m ON m.seq = j.value",
                (as_json(unknown),),
            )
            self.know_ids(found)

    def know_ids(self, found: Iterable[tuple[int, bytes]]) -> None:
        """Ids of the user's own that were read with their messages."""
        self._own.update([(seq, ids.id_text(id)) for seq, id in found])

    # -- leases

    def watch(self, until: int, lease: int, seqs: Sequence[int]) -> None:
        """Have the reaper look at these messages of a claim at that time."""
        row = self.db.execute("SELECT seqs FROM tampu_claim WHERE until = ? AND lease = ?", (until, lease)).fetchone()
        known = unpack_seqs(row[0]) if row else ()
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
        """What is done inside is undone when it is refused; the rest of the commit stands."""
        saved = (
            dict(self._deltas),
            {key: record.copy() for key, record in self._records.items()},
            set(self._noted),
            list(self._told),
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
            self._deltas, self._records, self._noted, self._told = saved[:4]
            self._endings, self.ready, self.due, self._last, self._turns = saved[4:]
            self.forget_new_queues(made)
            self._own.clear()  # these numbers are given out again
            self.limits.clear()
            self.slots.clear()
            self.waits.clear()
            raise
        finally:
            if self.db.in_transaction:  # a full disk ends it
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
        told = self.told()
        self.leases_expired = lapses(told)
        for (verb, q, state, worker), record in told:
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
