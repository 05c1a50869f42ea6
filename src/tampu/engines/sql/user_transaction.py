"""Calls and the user's own SQL in one transaction, on the engine's connection or on the user's."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from tampu.engines import port
from tampu.engines.sql.commit import Commit, carry_out
from tampu.engines.sql.db import Db
from tampu.engines.sql.rules import unit_names
from tampu.model.errors import InvalidConfig, TampuError, Unavailable

if TYPE_CHECKING:
    from tampu.engines.sql.base import BaseEngine


class Transaction:
    """Runs calls inside an open transaction; they take effect with its commit."""

    def __init__(self, engine: BaseEngine, db: Db, *, notify_queues: bool) -> None:
        self.connection = db.connection
        self.commits: list[Commit] = []
        self._engine = engine
        self._db = db
        self._notify_queues = notify_queues

    @property
    def active(self) -> bool:
        """True while the transaction is open."""
        return self._db.active

    def execute(self, sql: str, parameters: Any) -> Any:
        """The user's own SQL."""
        cursor = self._db.execute(sql, parameters)
        if self._engine.statements_may_commit and not self._notify_queues and not self.commits and not self.active:
            self._db.command(b"BEGIN")  # the user's statement committed; no call of ours ran before it, so go on
        return cursor

    def run(self, calls: Sequence[port.Call]) -> list[Any | TampuError]:
        db = self._db
        if not self.active:
            raise Unavailable("the transaction was ended inside the block", hint="leave commit to the with block")
        try:
            db.command(b"SAVEPOINT tampu_call")
            try:
                with db.together():
                    commit = self._engine.begin_joined(db)
                    replies = carry_out(self._engine.verbs, commit, calls, unit_names)
                    commit.finish()
                    if self._notify_queues and commit.ready:
                        self._engine.notify_inside(db)
                for fill in commit.deferred:
                    fill()
            except BaseException:
                # The user may catch this and commit: then half of the call must not be in it.
                # After a deadlock the server has rolled back everything and does not know the savepoint.
                with contextlib.suppress(self._engine.driver.error):
                    if not db.closed:
                        db.command(b"ROLLBACK TO SAVEPOINT tampu_call")
                        db.command(b"RELEASE SAVEPOINT tampu_call")
                raise
            db.command(b"RELEASE SAVEPOINT tampu_call")
        except self._engine.driver.error as error:
            raise self._engine.driver.translate(error) from error
        self.commits.append(commit)
        return replies


def driver_of(connection: Any, kind: type[Any], begun: contextlib.ExitStack, name: str, hint: str) -> Any:
    """The driver's connection, of this kind. One of SQLAlchemy wraps it; it begins a transaction if none is open."""
    if isinstance(connection, kind):
        return connection
    driver = getattr(getattr(connection, "connection", None), "driver_connection", None)
    if not isinstance(driver, kind):
        raise InvalidConfig(
            f"the connection must be one of {name}, or of SQLAlchemy on {name}", field="connection", hint=hint
        )
    if not connection.in_transaction():
        begun.enter_context(connection.begin())
    return driver


def check_tail(row: Sequence[Any] | None, engine: BaseEngine, shown: str) -> None:
    """Refuse a connection to another database: the tail of the ids differs in each. ``row`` has that of this one."""
    if not row or int(row[0]) != engine.registry.tail:
        raise InvalidConfig("the connection is to another database", field="connection", hint=f"connect to {shown}")


@contextlib.contextmanager
def own(engine: BaseEngine, db: Db, begin: bytes = b"BEGIN") -> Iterator[Transaction]:
    """A transaction on the engine's own connection."""
    work = Transaction(engine, db, notify_queues=False)
    db.command(begin)
    yield work
    if not work.active:
        raise Unavailable("the transaction was ended inside the block", hint="leave commit to the with block")
    db.command(b"COMMIT")
