"""Base of the stores on SQL databases. Each adds how to take a snapshot, and how to scan rows."""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import pyarrow as pa

from tampu.engines.encoding import PARTITION
from tampu.engines.sql import journal
from tampu.engines.sql.db import Db, ServerDb
from tampu.engines.sql.engine import SqlEngine
from tampu.stores import columns
from tampu.stores.arrow import message_rows, snapshot_rows
from tampu.stores.arrow.numbers import Numbers
from tampu.stores.port import MessageQuery, SnapshotPlan
from tampu.stores.sql import rows
from tampu.stores.sql.journal import E, SqlJournal
from tampu.stores.sql.snapshot import find_ids, find_rows

R = TypeVar("R")


class SqlStore(SqlJournal[E], abc.ABC):
    sparse = 2
    """A range is scanned if it has at most this many times the wanted messages; else each message is looked up."""

    @abc.abstractmethod
    def snapshot(self, work: Callable[[Db], R]) -> tuple[int, R]:
        """Number the journal and run a query in exactly that snapshot. Returns (last journal offset, result)."""

    @abc.abstractmethod
    def walk(self, wanted: Numbers, *, bodies: bool) -> Iterator[pa.RecordBatch]:
        """These messages, which are close together, and perhaps others between them, in the order of their numbers:
        seq, created, max_attempts, expires, ahead, id, body. In batches of bounded size. Without ``bodies``, bodies may
        be left out."""

    def plan(self, query: MessageQuery, pieces: int) -> SnapshotPlan:
        now, registry = self.engine.now(), self.engine.registry
        latest, found = self.snapshot(lambda db: find_rows(db, registry, query))
        return SnapshotPlan({PARTITION: latest}, snapshot_rows.pieces(found, pieces, registry.tail, now, query))

    def messages(self, piece: bytes) -> Iterator[pa.RecordBatch]:
        opened = snapshot_rows.opened(piece, self.engine.registry.tail)
        reader = rows.Reader(self, opened.now, opened.query)
        for packed in opened.parts:
            yield from reader.batches(snapshot_rows.unpacked(packed))

    def by_ids(self, tenant: str, ids: Sequence[str]) -> pa.Table:
        now, registry = self.engine.now(), self.engine.registry

        def work(db: Db) -> pa.Table:
            known = sorted(seq for seq, q in find_ids(db, registry, ids) if registry.name(db, q)[0] == tenant)
            found = rows.look_up(db, self, known, now, None) if known else None
            if found is None or not len(found.rows):
                return columns.MESSAGES.empty_table()
            return pa.Table.from_batches([message_rows.batch(found, columns.MESSAGES.names)])

        return message_rows.in_order(self.engine.readers.run_in_snapshot(work), ids)


S = TypeVar("S", bound=SqlEngine)


class ServerStore(SqlStore[S], abc.ABC):
    """Base of the stores on database servers. Each adds how to hold a snapshot.

    Readers assign the offsets of the journal (docs/decisions/0006-postgresql.md): a process that asks for the end
    numbers everything committed so far. What is read was numbered when the read was planned.
    """

    @abc.abstractmethod
    def hold(self, db: Db, other: ServerDb) -> int:
        """Number the journal, and leave ``other`` in a transaction that sees exactly what was numbered. Returns the
        last offset."""

    def numbered(self, work: Callable[[Db], R]) -> R:
        self._catch_up()
        found = self.engine.readers.run_in_snapshot(work)
        self.engine.seal()
        return found

    def snapshot(self, work: Callable[[Db], R]) -> tuple[int, R]:
        self._catch_up()  # number most of it first, so that others wait for the lock only briefly

        def asked(db: Db) -> tuple[int, R]:
            with self.engine.readers.another() as other:
                latest = self.hold(db, other)
                with other.together():
                    found = work(other)
                    other.command(b"COMMIT")
            return latest, found

        return self.engine.readers.run(asked)

    def _catch_up(self) -> None:
        while not self.engine.readers.run(journal.catch_up):
            pass
