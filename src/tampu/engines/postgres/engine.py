"""The PostgreSQL engine: what is PostgreSQL's own about an engine on SQL (see `tampu.engines.sql.engine`).

Wake-ups come by NOTIFY, hot tables are vacuumed as messages pass, and users join with psycopg's connections.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import psycopg

from tampu.engines import port
from tampu.engines.postgres import checks, connect, migrations, user_transaction
from tampu.engines.postgres.database import Db
from tampu.engines.postgres.single_statement import SingleStatement
from tampu.engines.postgres.vacuum import Vacuum
from tampu.engines.postgres.wakeup import Wakeup
from tampu.engines.sql.commit import Commit
from tampu.engines.sql.engine import FOLD_EVERY, SqlEngine, Uncertain
from tampu.engines.sql.queue_registry import QueueRegistry
from tampu.engines.sql.user_transaction import Transaction
from tampu.model.errors import TampuError
from tampu.model.times import Clock


class PostgresEngine(SqlEngine):
    """See `tampu.engines.port.Engine` for the contract."""

    def __init__(
        self, url: str, *, clock: Clock | None = None, durability: str | None = None, migrate: bool = True
    ) -> None:
        self.place = connect.target(url, durability)
        self._asked = url, durability
        self._migrate = migrate
        self._second: PostgresEngine | None = None
        self._upkeep = Vacuum(self.place)
        super().__init__(connect.PostgresDriver(self.place), self.place.durability, clock)
        self._at_once = SingleStatement(self.registry)

    def _open_schema(self, db: Any) -> QueueRegistry:
        self.durability = connect.durability(db.connection, self.place)
        if self._migrate:
            migrations.migrate(db.connection, self.place.schema)
        self.schema = migrations.version_of(db.connection, self.place.schema)
        return migrations.registry(db.connection, self.place.schema)

    def _commit(self, db: Any, calls: Sequence[port.Call], *, ahead: bool = True) -> tuple[list[Any], Commit]:
        """In one round trip where that can be."""
        if ahead and db.ours and (self._commits + 1) % FOLD_EVERY and db.alive():
            try:
                done = self._at_once.run(db, calls, self.fake_now())
            except BaseException as error:
                self._undo(db, error)
                self._lost(db, calls, error)
                raise
            if done is not None:
                self._commits += 1
                return done
        return super()._commit(db, calls, ahead=ahead)

    def _lost(self, db: Db, calls: Sequence[port.Call], error: BaseException) -> None:
        """Could it have been committed? Claims and acks may be done again; of messages only the caller knows."""
        lost = self._db is None and isinstance(error, psycopg.Error)
        told = not db.answered and getattr(error, "sqlstate", None) is not None  # the server said that it was not
        if lost and not told and isinstance(calls[0], port.Publish):
            raise Uncertain from error

    def open_second(self) -> PostgresEngine:
        """A second connection, for settles while this one is busy. It shares the known claims."""
        url, durability = self._asked
        second = PostgresEngine(url, clock=self._clock, durability=durability, migrate=False)
        second.registry = QueueRegistry(self.registry.tail, self.registry.stamp, self.registry.watched)
        second._at_once = SingleStatement(second.registry)
        second._listener, second._wakeup = self._listener, self._wakeup
        self._second = second
        if self._closed:  # meanwhile
            self._close_second()
            self._check_usable()
        return second

    def _close_second(self) -> None:
        if self._second is not None:
            self._second._wakeup = None  # it is ours
            self._second.close()

    def _listening(self) -> Wakeup:
        return Wakeup(self.place, self._stirred)

    def announce(self, commit: Commit) -> None:
        super().announce(commit)
        if self._wakeup is None and commit.ready:
            # Who does not listen, such as a Spark job, has no thread that rings. Nobody depends on it.
            with contextlib.suppress(TampuError):
                self.readers.ask(lambda db: db.send("notify_alone", f"tampu_{self.place.schema}", self._me))

    def join(self, connection: Any) -> contextlib.AbstractContextManager[Transaction]:
        return user_transaction.joined(self, connection)

    def notify_inside(self, db: Any) -> None:
        """Theirs to commit: the server tells those who wait when, and if, it does."""
        db.send("notify", f"tampu_{self.place.schema}", "transaction")

    def _passed(self, commit: Commit) -> None:
        self._upkeep.moved(sum(commit.ready.values()), commit.taken)

    def check(self) -> list[tuple[str, str, str]]:
        def look(db: Any) -> list[tuple[str, str, str]]:
            assert isinstance(db, Db)
            return checks.check(db, self.place.schema, self.durability)

        return self.readers.ask(look)

    def close(self) -> None:
        self._close_second()
        super().close()
        self._close_second()
        self._upkeep.close()
