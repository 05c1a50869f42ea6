"""One running commit of the embedded engine: the numbers it gives out, the counts and the journal it writes."""

from __future__ import annotations

from collections.abc import Iterable

from tampu.engines.encoding import pack_seqs
from tampu.engines.sql import commit as sql_commit
from tampu.engines.sql.locks import Locks
from tampu.engines.sqlite.database import Db, sql_of
from tampu.engines.sqlite.ids import SqliteRegistry, take_numbers

_COUNTERS = sql_of("select_counters")
_NEXT = sql_of("select_next_due")
_ENDING = sql_of("insert_ending")
_CLAIM = sql_of("insert_claim")
_RECORD = sql_of("insert_journal")
_COUNT = sql_of("add_to_counter")


class _NoLocks(Locks):
    """One commit writes at a time: nothing is locked."""

    def __init__(self) -> None: ...

    def take(self, names: Iterable[bytes]) -> None: ...

    def try_take(self, names: Iterable[bytes]) -> set[bytes]:
        return set(names)


_NO_LOCKS = _NoLocks()


class Commit(sql_commit.Commit):
    db: Db
    registry: SqliteRegistry

    def __init__(self, db: Db, registry: SqliteRegistry, now: int) -> None:
        super().__init__(db, registry, now, locks=_NO_LOCKS)
        db.now = now
        ((db.last,), (db.offset,)) = db.execute(_COUNTERS)
        db.began = (db.last, db.offset)

    @property
    def next(self) -> tuple[int | None, int | None, int | None]:
        delay, lease, expiry = self.db.execute(_NEXT).fetchone()
        return delay, lease, expiry

    def numbers(self, count: int) -> range:
        return take_numbers(self.db, count)

    def finish(self) -> None:
        db, now = self.db, self.now
        if self._turns is not None:
            self._turns.keep()
        for (q, state), seqs in self._endings.items():
            db.execute(_ENDING, (q, state, take_numbers(db, 1)[0], now, pack_seqs(seqs)))
        for claim in self._claims:
            db.execute(_CLAIM, claim)
        records = self.journal_records()
        for (verb, q, state, worker), record in records:
            count = len(record.seqs)
            if count:
                db.execute(_RECORD, (db.offset + 1, count, now, q, record.packed(verb, state, worker)))
                db.offset += count
        changes = [(delta, q, kind) for (q, kind), delta in self._deltas.items() if delta]
        last, offset = db.began
        if db.last != last:
            changes.append((db.last - last, 0, 0))
        if db.offset != offset:
            changes.append((db.offset - offset, 0, 1))
        if changes:
            db.executemany(_COUNT, changes)
        self.leases_expired = sql_commit.expired_leases(records)
        self._name_queues()
