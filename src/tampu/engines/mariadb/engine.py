"""The MariaDB engine: what is MariaDB's own about an engine on SQL (see `tampu.engines.sql.engine`).

Wake-ups of other processes come by looking, users join with PyMySQL's connections, and what a reader of the journal
has seen is on disk before it is told. With an index in Redis, claims are told there what to take, and processes ring.
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
        """The journal's offset that is known to be on disk."""
        self.index: Index | None = None
        self.guests_say: str | None = None
        """How a connection that can not tell the index says so (see `wire.Wire.guest`)."""
        super().__init__(connect.MariaDriver(self.place), "full", clock)
        self._index_repair = None if self.index is None else IndexRepair(self.index, self.readers.ask)

    def _open_schema(self, db: Any) -> QueueRegistry:
        self.durability = connect.durability(db, self.place.durability)
        if self._migrate:
            migrations.migrate(db.connection, self.place.database)
        self.schema = migrations.version_of(db.connection, self.place.database)
        registry = migrations.registry(db.connection, self.place.database)
        if self.place.index is not None:
            self.index = Index(self.place.index, registry.tail, self._stirred)
            self.guests_say = "insert_stale"
            db.send("enable_index")
        elif db.value("is_index_enabled"):
            self.guests_say = "mark_index_stale"
        return registry

    def _connected(self, give_up: float) -> Any:
        db: Any = super()._connected(give_up)
        db.index = self.index
        db.guest = self.guests_say
        return db

    def announce(self, commit: Commit) -> None:
        db: Any = self._db
        if self.index is not None and db is not None:
            self._tell(self.index, db, notify=bool(commit.ready))
        super().announce(commit)

    def _tell(self, index: Index, db: Db, *, notify: bool) -> None:
        """After a commit: the index learns what it did. What it can not be told, the database remembers."""
        entered, left = db.entered, db.left
        db.entered, db.left, db.offered = [], [], []
        if not index.up or not (entered or left or notify):
            if entered:
                self._say_stale()
            return
        if not index.tell(entered, left, notify=notify) and entered:
            self._say_stale()

    def _say_stale(self) -> None:
        with contextlib.suppress(TampuError):  # then a claim of the next second finds it
            self.readers.ask(lambda db: db.send("mark_index_stale"))

    def _undo(self, db: Any, error: BaseException) -> None:
        offered = db.offered
        db.entered, db.left, db.offered = [], [], []
        super()._undo(db, error)
        if db.hurried and self._db is not None:
            with contextlib.suppress(self.driver.error):
                db.send("end_sweep")
        if offered and self.index is not None and self.index.up:
            self.index.tell(offered, [], notify=False)

    def _listening(self) -> Wakeup:
        return Wakeup(self.place, self._stirred, lambda: self.index is not None and self.index.up)

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
        """A crash must not take back what a reader was told: the offsets would be given out again."""
        self.readers.ask(lambda db: db.send("seal_journal"))

    def check(self) -> list[tuple[str, str, str]]:
        def look(db: Any) -> list[tuple[str, str, str]]:
            assert isinstance(db, Db)
            return checks.check(db, self.place.database, self.durability)

        found = self.readers.ask(look)
        if self.index is not None:
            found.append(("index", *self.index.health()))
        return found

    def close(self) -> None:
        if self._index_repair is not None and not self._closed:
            self._index_repair.close()
        super().close()
