"""One commit under way: the clock reading, the numbers given out, the counts that change, the journal it will write.

The operations (one file each) do their work through it; `finish` writes what they have in common, once per commit.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tampu.engines.sqlite import ids, ready
from tampu.engines.sqlite.codes import DELAYED, HELD, LEASED, READY, as_json, pack_seqs, unpack_seqs
from tampu.engines.sqlite.journal import Record, pack_record
from tampu.model.errors import TampuError


class House:
    """What is true of a file for good: the tail of its ids and the numbers of its queues."""

    def __init__(self, tail: int) -> None:
        self.tail = tail
        self.id = ids.Ids(tail)
        self.numbers: dict[tuple[str, str], int] = {}
        self.names: dict[int, tuple[str, str]] = {}

    def learn(self, q: int, tenant: str, name: str) -> None:
        self.numbers[tenant, name] = q
        self.names[q] = (tenant, name)

    def number(self, db: sqlite3.Connection, tenant: str, name: str) -> int | None:
        """The number of a queue; None if there is none of that name."""
        q = self.numbers.get((tenant, name))
        if q is None:
            row = db.execute("SELECT q FROM tampu_queue WHERE tenant = ? AND name = ?", (tenant, name)).fetchone()
            if row is None:
                return None
            q = int(row[0])
            self.learn(q, tenant, name)
        return q

    def name(self, db: sqlite3.Connection, q: int) -> tuple[str, str]:
        """(tenant, name) of a queue number."""
        if q not in self.names:
            row = db.execute("SELECT tenant, name FROM tampu_queue WHERE q = ?", (q,)).fetchone()
            self.learn(q, *row)
        return self.names[q]


class Commit:
    def __init__(self, db: sqlite3.Connection, house: House, now: int) -> None:
        self.db = db
        self.house = house
        self.now = now
        self.ready: dict[int, int] = {}
        """How many messages became ready, by queue."""
        self.due: int | None = None
        """The earliest time at which something this commit wrote is due."""
        self._deltas: dict[tuple[int, int], int] = {}
        self._records: dict[tuple[Any, ...], Record] = {}
        self._noted: set[int] = set()
        self._told: list[tuple[tuple[Any, ...], Record]] = []
        self._endings: dict[tuple[int, int], list[int]] = {}
        self._new_queues: list[int] = []
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

    def queue(self, tenant: str, name: str) -> int:
        """The number of a queue, made if it is new."""
        q = self.house.number(self.db, tenant, name)
        if q is None:
            q = self.db.execute("INSERT INTO tampu_queue (tenant, name) VALUES (?, ?)", (tenant, name)).lastrowid
            assert q is not None
            self.db.executemany("INSERT INTO tampu_counter VALUES (?, ?, 0)", [(q, kind) for kind in range(8)])
            self.house.learn(q, tenant, name)
            self._new_queues.append(q)
        return q

    def forget_new_queues(self) -> None:
        """After a rollback: the queues made in this commit do not exist."""
        for q in self._new_queues:
            self.house.numbers.pop(self.house.names.pop(q), None)
        self._new_queues.clear()

    def tally(self, q: int) -> list[int]:
        """Messages by state number, with what this commit changed."""
        if q not in self._tallies:
            rows = self.db.execute("SELECT n FROM tampu_counter WHERE q = ? ORDER BY kind", (q,))
            self._tallies[q] = [row[0] for row in rows]
        counts = list(self._tallies[q])
        for (owner, kind), delta in self._deltas.items():
            if owner == q:
                counts[kind] += delta
        return counts

    def count(self, q: int, kind: int, delta: int) -> None:
        self._deltas[q, kind] = self._deltas.get((q, kind), 0) + delta

    # -- messages by id

    def find(self, tenant: str, id: str) -> tuple[int, int] | None:
        """(seq, q) of a message of this tenant."""
        return find(self.db, self.house, tenant, id)

    def id(self, seq: int) -> str:
        if ids.own_id(seq):
            if seq not in self._own:
                self.learn_ids([seq])
            return self._own[seq]
        return self.house.id.of(seq)

    def learn_ids(self, seqs: Iterable[int]) -> None:
        """Look up the ids of the user's own among these messages with one statement, for `id` to know."""
        unknown = [seq for seq in seqs if seq & 1 and seq not in self._own]
        if unknown:
            found = self.db.execute(
                "SELECT m.seq, m.id FROM json_each(?) j CROSS JOIN tampu_message m ON m.seq = j.value",
                (as_json(unknown),),
            )
            self._own.update((seq, ids.id_text(id)) for seq, id in found)

    # -- moves shared by several operations

    def enter_ready(self, rows: Sequence[tuple[int, int, int, int, int | None]]) -> None:
        """Put messages at the back of their rank; rows are (seq, q, rank, attempts, lease)."""
        ready.enter(
            self.db,
            [
                (q, rank, pos, seq, attempts, lease, seq)
                for pos, (seq, q, rank, attempts, lease) in zip(self.numbers(len(rows)), rows, strict=True)
            ],
        )
        for _, q, _, _, _ in rows:
            self.count(q, READY, 1)
            self.ready[q] = self.ready.get(q, 0) + 1

    def enter_delayed(self, rows: Sequence[tuple[int, int, int, int, int | None]]) -> None:
        """Rows are (seq, q, run_at, attempts, lease)."""
        self.db.executemany("INSERT INTO tampu_delayed VALUES (?, ?, ?, ?, ?)", rows)
        for _, q, run_at, _, _ in rows:
            self.count(q, DELAYED, 1)
            self.falls_due(run_at)

    def watch(self, until: int, lease: int, seqs: Sequence[int]) -> None:
        """Have the reaper look at these messages of a claim at that time."""
        row = self.db.execute("SELECT seqs FROM tampu_claim WHERE until = ? AND lease = ?", (until, lease)).fetchone()
        known = unpack_seqs(row[0]) if row else ()
        self.db.execute(
            "INSERT OR REPLACE INTO tampu_claim VALUES (?, ?, ?)",
            (until, lease, pack_seqs([*known, *(seq for seq in seqs if seq not in known)])),
        )
        self.falls_due(until)

    def falls_due(self, at: int) -> None:
        if self.due is None or at < self.due:
            self.due = at

    def end(self, q: int, state: int, rows: Sequence[tuple[int, int, int | None]]) -> None:
        """Messages that have left their index end as ``state``; rows are (seq, attempts, lease)."""
        self.db.executemany(
            "INSERT INTO tampu_ended VALUES (?, ?, ?, ?, ?, ?)",
            [(seq, q, state, self.now, attempts, lease) for seq, attempts, lease in rows],
        )
        self.ended(q, state, [row[0] for row in rows])

    def ended(self, q: int, state: int, seqs: list[int]) -> None:
        """Note messages whose row in tampu_ended is written."""
        self.count(q, state, len(seqs))
        self._endings.setdefault((q, state), []).extend(seqs)
        self.leave_lanes(q, seqs)

    def leave_lanes(self, q: int, seqs: Sequence[int]) -> None:
        """The next message of each group whose turn has come moves from held to ready, in this same commit."""
        if self.db.execute("SELECT 1 FROM tampu_lane WHERE q = ? LIMIT 1", (q,)).fetchone() is None:
            return
        lanes = self.db.execute(
            "SELECT l.lane FROM json_each(?) j CROSS JOIN tampu_message m ON m.seq = j.value"
            " JOIN tampu_lane l ON l.q = m.q AND l.lane = m.lane AND l.seq = m.seq",
            (as_json(seqs),),
        ).fetchall()
        for (lane,) in lanes:
            self.db.execute("DELETE FROM tampu_lane WHERE q = ? AND lane = ?", (q, lane))
            row = self.db.execute(
                "SELECT h.seq, h.run_at, h.attempts, m.rank FROM tampu_held h JOIN tampu_message m ON m.seq = h.seq"
                " WHERE h.q = ? AND h.lane = ? ORDER BY h.seq LIMIT 1",
                (q, lane),
            ).fetchone()
            if row is not None:
                seq, run_at, attempts, rank = row
                self.db.execute("DELETE FROM tampu_held WHERE seq = ?", (seq,))
                self.count(q, HELD, -1)
                self.db.execute("INSERT INTO tampu_lane VALUES (?, ?, ?)", (q, lane, seq))
                self.note("free", q, self.start(seq, q, rank, run_at, attempts), seq, attempts)

    def start(self, seq: int, q: int, rank: int, run_at: int | None, attempts: int) -> int:
        """Let a message go to ready, or to delayed if its time has not come; the state it is in then."""
        if run_at is not None and run_at > self.now:
            self.enter_delayed([(seq, q, run_at, attempts, None)])
            return DELAYED
        self.enter_ready([(seq, q, rank, attempts, None)])
        return READY

    def admit(self, seq: int, q: int, rank: int, run_at: int | None, attempts: int, lane: str | None) -> int:
        """`start`, unless another message of its group goes first: then held until its turn."""
        if lane is not None:
            taken = self.db.execute("SELECT 1 FROM tampu_lane WHERE q = ? AND lane = ?", (q, lane)).fetchone()
            if taken:
                self.hold(seq, q, lane, "group", run_at, attempts)
                return HELD
            self.db.execute("INSERT INTO tampu_lane VALUES (?, ?, ?)", (q, lane, seq))
        return self.start(seq, q, rank, run_at, attempts)

    def hold(self, seq: int, q: int, lane: str | None, reason: str, run_at: int | None, attempts: int) -> None:
        self.db.execute("INSERT INTO tampu_held VALUES (?, ?, ?, ?, ?, ?)", (seq, q, lane, reason, run_at, attempts))
        self.count(q, HELD, 1)

    def restore_marks(self, seqs: Iterable[int]) -> None:
        """Messages that wait again take their expiry back, and their key if no newer message has it."""
        text = as_json(seqs)
        self.db.execute(
            "INSERT OR IGNORE INTO tampu_expiry SELECT m.expires, m.seq FROM json_each(?) j"
            " CROSS JOIN tampu_message m ON m.seq = j.value WHERE m.expires IS NOT NULL",
            (text,),
        )
        (soonest,) = self.db.execute(
            "SELECT min(m.expires) FROM json_each(?) j CROSS JOIN tampu_message m ON m.seq = j.value", (text,)
        ).fetchone()
        if soonest is not None:
            self.falls_due(soonest)
        self.db.execute(
            "INSERT OR IGNORE INTO tampu_key SELECT m.q, m.key, m.seq FROM json_each(?) j"
            " CROSS JOIN tampu_message m ON m.seq = j.value WHERE m.key IS NOT NULL",
            (text,),
        )

    def drop_marks(self, seqs: Iterable[int]) -> None:
        """Messages that no longer wait give up their expiry and their key."""
        text = as_json(seqs)
        self.db.execute(
            "DELETE FROM tampu_expiry WHERE (at, seq) IN (SELECT m.expires, m.seq FROM json_each(?) j"
            " CROSS JOIN tampu_message m ON m.seq = j.value WHERE m.expires IS NOT NULL)",
            (text,),
        )
        for q, key, seq in self.db.execute(
            "SELECT m.q, m.key, m.seq FROM json_each(?) j CROSS JOIN tampu_message m ON m.seq = j.value"
            " WHERE m.key IS NOT NULL",
            (text,),
        ).fetchall():
            self.db.execute("DELETE FROM tampu_key WHERE q = ? AND key = ? AND seq = ?", (q, key, seq))

    # -- journal

    def record(self, verb: str, q: int, state: int | None, worker: str | None = None) -> Record:
        """The journal record of this commit for a verb, queue, state and worker."""
        key = (verb, q, state, worker)
        if key not in self._records:
            self._records[key] = Record()
        return self._records[key]

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
            self.turn_page()
        self._noted.add(seq)
        self.record(verb, q, state, worker).add(seq, attempt, detail)

    def turn_page(self) -> None:
        """What follows is journaled after what was so far: a message that moves twice ends where it moved last."""
        self._told.extend(self._records.items())
        self._records, self._noted = {}, set()

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
        )
        made = len(self._new_queues)
        self.db.execute("SAVEPOINT tampu_attempt")
        try:
            yield
        except TampuError:
            self.db.execute("ROLLBACK TO tampu_attempt")
            self._deltas, self._records, self._noted, self._told = saved[:4]
            self._endings, self.ready, self.due, self._last = saved[4:]
            for q in self._new_queues[made:]:
                self.house.numbers.pop(self.house.names.pop(q), None)
            del self._new_queues[made:]
            self._own.clear()  # these numbers are given out again
            raise
        finally:
            if self.db.in_transaction:  # a full disk ends it
                self.db.execute("RELEASE tampu_attempt")

    def finish(self) -> None:
        db = self.db
        for (q, state), seqs in self._endings.items():
            db.execute(
                "INSERT INTO tampu_ending VALUES (?, ?, ?, ?, ?)",
                (q, state, self.numbers(1)[0], self.now, pack_seqs(seqs)),
            )
        for (verb, q, state, worker), record in (*self._told, *self._records.items()):
            if record.seqs:
                own = None
                if record.has_own_id():
                    self.learn_ids(seq for seq in record.seqs if seq not in record.ids)
                    own = [(record.ids.get(seq) or self.id(seq)) if seq & 1 else None for seq in record.seqs]
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


def find(db: sqlite3.Connection, house: House, tenant: str, id: str) -> tuple[int, int] | None:
    """(seq, q) of the message with this id, if it is one of the tenant's."""
    seq = ids.seq_of(id, house.tail)
    rows = [] if seq is None else db.execute("SELECT seq, q FROM tampu_message WHERE seq = ?", (seq,)).fetchall()
    if not any(house.name(db, q)[0] == tenant for _, q in rows):
        rows = db.execute("SELECT seq, q FROM tampu_message WHERE id = ?", (ids.id_bytes(id),)).fetchall()
    return next(((seq, q) for seq, q in rows if house.name(db, q)[0] == tenant), None)


LIVE_KINDS = (READY, DELAYED, LEASED, HELD)
