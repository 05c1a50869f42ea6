"""Calls inside an open transaction, on the engine's connection or the user's."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from tampu.engines import port
from tampu.engines.commit import carry_out
from tampu.engines.sqlite import files, unit_names
from tampu.engines.sqlite.commit import Commit
from tampu.engines.sqlite.queue_registry import QueueRegistry
from tampu.engines.sqlite.verbs import VERBS
from tampu.model.errors import TampuError, Unavailable

if TYPE_CHECKING:
    from tampu.engines.sqlite.engine import SqliteEngine


@contextlib.contextmanager
def plain_rows(db: sqlite3.Connection) -> Iterator[None]:
    """Rows as tuples and text as str, whatever factories the user has set."""
    made = db.row_factory, db.text_factory
    db.row_factory, db.text_factory = None, str
    try:
        yield
    finally:
        db.row_factory, db.text_factory = made


class Transaction:
    """Runs calls inside an open transaction; they take effect with its commit."""

    def __init__(self, engine: SqliteEngine, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self.commits: list[Commit] = []
        self._engine = engine

    @property
    def active(self) -> bool:
        """True while the transaction is open."""
        self._engine.check_process()
        return self.connection.in_transaction

    def execute(self, sql: str, parameters: Any) -> Any:
        """The user's own SQL."""
        return self.connection.execute(sql, parameters)

    def run(self, calls: Sequence[port.Call]) -> list[Any | TampuError]:
        db = self.connection
        if not self.active:
            raise Unavailable("the transaction has ended inside the block", hint="leave commit to the with block")
        with plain_rows(db):
            return self._run(db, calls)

    def _run(self, db: sqlite3.Connection, calls: Sequence[port.Call]) -> list[Any | TampuError]:
        db.execute("SAVEPOINT tampu_call")
        try:
            # A registry of its own: the user may still roll back, so nobody knows yet whether new queues will exist.
            commit = Commit(db, QueueRegistry(self._engine.registry.tail), self._engine.now())
            replies = carry_out(VERBS, commit, calls, unit_names)
            commit.finish()
        except BaseException as error:
            # A user who catches this and continues must not commit half of the call.
            if db.in_transaction:
                db.execute("ROLLBACK TO tampu_call")
                db.execute("RELEASE tampu_call")
            if isinstance(error, sqlite3.Error):
                raise files.translate(error, self._engine.path) from error
            raise
        db.execute("RELEASE tampu_call")
        self.commits.append(commit)
        return replies
