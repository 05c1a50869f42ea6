"""The PostgreSQL engine: what differs from the base class (`tampu.engines.sql.engine`).

Wake-ups use NOTIFY, busy tables are vacuumed after a number of messages, and calls can join a psycopg transaction.
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

_COUNT_EVERY = 1_000


class PostgresEngine(SqlEngine):
    """See `tampu.engines.port.Engine` for the contract."""

    def __init__(
        self, url: str, *, clock: Clock | None = None, durability: str | None = None, migrate: bool = True
    ) -> None:
        self.place = connect.target(url, durability)
        self._opened_with = url, durability
        self._migrate = migrate
        self._second: PostgresEngine | None = None
        self._vacuum = Vacuum(self.place)
        super().__init__(connect.PostgresDriver(self.place), self.place.durability, clock)
        self._single_statement = SingleStatement(self.registry)
        self._made_ready = 0
        """Messages that `_vacuum` does not know of yet."""
        self._after_commit = self._count_moved

    def _open_schema(self, db: Any) -> QueueRegistry:
        self.durability = connect.durability(db.connection, self.place)
        if self._migrate:
            migrations.migrate(db.connection, self.place.schema)
        self.schema = migrations.version_of(db.connection, self.place.schema)
        return migrations.registry(db.connection, self.place.schema)

    def _commit(self, db: Any, calls: Sequence[port.Call], *, ahead: bool = True) -> tuple[list[Any], Commit]:
        """Commit in a single statement if possible."""
        if ahead and db.ours and (self._commits + 1) % FOLD_EVERY and db.alive():
            try:
                done = self._single_statement.run(db, calls, self.fake_now())
            except BaseException as error:
                self._undo(db, error)
                self._raise_if_uncertain(db, calls, error)
                raise
            if done is not None:
                self._commits += 1
                return done
        return super()._commit(db, calls, ahead=ahead)

    def _raise_if_uncertain(self, db: Db, calls: Sequence[port.Call], error: BaseException) -> None:
        """Raise `Uncertain` if a publish may have been committed. Claims and acks are safe to repeat."""
        lost = self._db is None and isinstance(error, psycopg.Error)
        failed = not db.answered and getattr(error, "sqlstate", None) is not None  # the server says it did not commit
        if lost and not failed and isinstance(calls[0], port.Publish):
            raise Uncertain from error

    def open_second(self) -> PostgresEngine:
        """A second engine for settles while this one is busy. It shares what this process knows of open claims."""
        url, durability = self._opened_with
        second = PostgresEngine(url, clock=self._clock, durability=durability, migrate=False)
        second.registry = QueueRegistry(self.registry.id, self.registry.stamp, self.registry.open_claims)
        second._single_statement = SingleStatement(second.registry)
        second._listener, second._wakeup = self._listener, self._wakeup
        self._second = second
        if self._closed:  # by another thread meanwhile
            self._close_second()
            self._check_usable()
        return second

    def _close_second(self) -> None:
        if self._second is not None:
            self._second._wakeup = None  # it belongs to this engine
            self._second.close()

    def _start_wakeup(self) -> Wakeup:
        return Wakeup(self.place, self._on_remote_change)

    def announce(self, commit: Commit) -> None:
        super().announce(commit)
        if self._wakeup is None and commit.ready:
            # A process that does not listen, such as a Spark job, has no wake-up thread. Failing only costs time.
            with contextlib.suppress(TampuError):
                self.readers.run(lambda db: db.send("notify_alone", f"tampu_{self.place.schema}", self._instance))

    def join(self, connection: Any) -> contextlib.AbstractContextManager[Transaction]:
        return user_transaction.joined(self, connection)

    def notify_inside(self, db: Any) -> None:
        """The server delivers the NOTIFY when the user's transaction commits."""
        db.send("notify", f"tampu_{self.place.schema}", "transaction")

    def _count_moved(self, commit: Commit) -> None:
        self._made_ready += sum(commit.ready.values())
        if commit.taken or self._made_ready >= _COUNT_EVERY:
            self._vacuum.moved(self._made_ready, commit.taken)
            self._made_ready = 0

    def check(self) -> list[tuple[str, str, str]]:
        def run(db: Any) -> list[tuple[str, str, str]]:
            assert isinstance(db, Db)
            return checks.check(db, self.place.schema, self.durability)

        return self.readers.run(run)

    def close(self) -> None:
        self._close_second()
        super().close()
        self._close_second()
        self._vacuum.close()
