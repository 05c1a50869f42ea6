"""The MariaDB engine: what differs from the base class (`tampu.engines.sql.engine`).

Processes notice each other's commits by polling, calls can join a PyMySQL transaction, and journal records are on disk
before a reader sees them. With an index in Redis, claims take their order from it and wake-ups go through Redis.
"""

from __future__ import annotations

import contextlib
from typing import Any

from tampu.engines.encoding import PARTITION
from tampu.engines.mariadb import checks, connect, migrations, user_transaction
from tampu.engines.mariadb.database import Db
from tampu.engines.mariadb.index import Index
from tampu.engines.mariadb.index_repair import IndexRepair
from tampu.engines.mariadb.wakeup import Wakeup
from tampu.engines.sql.commit import Commit
from tampu.engines.sql.engine import SqlEngine
from tampu.engines.sql.queue_registry import QueueRegistry
from tampu.engines.sql.user_transaction import Transaction
from tampu.model.errors import TampuError
from tampu.model.journal import JournalPage, Position
from tampu.model.times import Clock


class MariaEngine(SqlEngine):
    """See `tampu.engines.port.Engine` for the contract."""

    statements_may_commit = True

    def __init__(
        self, url: str, *, clock: Clock | None = None, durability: str | None = None, migrate: bool = True
    ) -> None:
        self.place = connect.target(url, durability)
        self._migrate = migrate
        self._on_disk = 0
        """Journal offset up to which the journal is known to be on disk."""
        self.index: Index | None = None
        self.stale_statement: str | None = None
        """Statement that a connection without the index runs to mark it stale (see `database.Db.stale_statement`)."""
        super().__init__(connect.MariaDriver(self.place), "full", clock)
        self._index_repair = None
        if self.index is not None:
            self._index_repair = IndexRepair(self.index, self.readers.run)
            self._after_commit = self._update_index

    def _open_schema(self, db: Any) -> QueueRegistry:
        self.durability = connect.durability(db, self.place.durability)
        if self._migrate:
            migrations.migrate(db.connection, self.place.database)
        self.schema = migrations.version_of(db.connection, self.place.database)
        registry = migrations.registry(db.connection, self.place.database)
        if self.place.index is not None:
            self.index = Index(self.place.index, registry.tail, self._on_remote_change)
            self.stale_statement = "insert_stale"
            db.send("enable_index")
        elif db.value("is_index_enabled"):
            self.stale_statement = "mark_index_stale"
        db.index, db.stale_statement = self.index, self.stale_statement
        return registry

    def _connect(self) -> Any:
        db: Any = super()._connect()
        db.index, db.stale_statement = self.index, self.stale_statement
        return db

    def _update_index(self, commit: Commit) -> None:
        """After a commit: send its changes to the index, or mark the index stale in the database if that fails."""
        db: Any = self._db
        index, notify = self.index, bool(commit.ready)
        if index is None or db is None:
            return
        entered, left = db.entered, db.left
        db.entered, db.left, db.offered = [], [], []
        if not index.up or not (entered or left or notify):
            if entered:
                self._mark_stale()
            return
        if not index.update(entered, left, notify=notify) and entered:
            self._mark_stale()

    def _mark_stale(self) -> None:
        with contextlib.suppress(TampuError):  # if that fails too, a claim within a second finds the messages
            self.readers.run(lambda db: db.send("mark_index_stale"))

    def _undo(self, db: Any, error: BaseException) -> None:
        offered = db.offered
        db.entered, db.left, db.offered = [], [], []
        super()._undo(db, error)
        if db.short_lock_timeout and self._db is not None:
            with contextlib.suppress(self.driver.error):
                db.send("end_sweep")
        if offered and self.index is not None and self.index.up:
            self.index.update(offered, [], notify=False)

    def wake_others(self) -> None:
        if self.index is not None:
            self.index.wake_listeners()

    def _start_wakeup(self) -> Wakeup:
        return Wakeup(self.place, self._on_remote_change, lambda: self.index is not None and self.index.up)

    def join(self, connection: Any) -> contextlib.AbstractContextManager[Transaction]:
        return user_transaction.joined(self, connection)

    def journal(self, after: Position | None, limit: int, tenant: str | None) -> JournalPage:
        page = super().journal(after, limit, tenant)
        end = page.latest[PARTITION]
        if end > self._on_disk:
            self.seal()
            self._on_disk = end
        return page

    def seal(self) -> None:
        """Flush the journal to disk: if a crash lost what a reader has seen, its offsets would be given out again."""
        self.readers.run(lambda db: db.send("seal_journal"))

    def check(self) -> list[tuple[str, str, str]]:
        def run(db: Any) -> list[tuple[str, str, str]]:
            assert isinstance(db, Db)
            return checks.check(db, self.place.database, self.durability)

        found = self.readers.run(run)
        if self.index is not None:
            found.append(("index", *self.index.health()))
        return found

    def close(self) -> None:
        if self._index_repair is not None and not self._closed:
            self._index_repair.close()
        super().close()
