"""Base of the stores on database servers. Each adds how to hold a snapshot, and how to scan rows.

Readers assign the offsets of the journal (docs/decisions/0006-postgresql.md): a process that asks for the end numbers
everything committed so far. What is read was numbered when the read was planned.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import TypeVar

from tampu.engines.sql import journal
from tampu.engines.sql.db import Db, ServerDb
from tampu.engines.sql.engine import SqlEngine
from tampu.stores.sql.store import SqlStore

R = TypeVar("R")
S = TypeVar("S", bound=SqlEngine)


class ServerStore(SqlStore[S], abc.ABC):
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
