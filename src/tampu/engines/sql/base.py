"""What all engines on SQL databases have in common, embedded or not: reading, and calls that fail."""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from tampu.engines import port
from tampu.engines.sql import journal, read
from tampu.engines.sql.commit import Commit, Wakeup
from tampu.engines.sql.db import Db, Translator
from tampu.engines.sql.queue_registry import QueueRegistry
from tampu.engines.sql.verbs import documents, transfer
from tampu.engines.transfer import RequestPage, SnapshotPage
from tampu.model.errors import TampuError
from tampu.model.journal import JournalPage, Position
from tampu.model.message import Message, State

R = TypeVar("R")


Finding = tuple[str, str, str]
"""What a check of `tampu doctor` found: name, ok or warn or bad, text."""


def schema_finding(where: str, version: int, newest: int) -> Finding:
    return ("schema", "ok" if version == newest else "warn", f"{where}version {version}, newest {newest}")


def index_finding(messages: int, places: int, wrong: int) -> Finding:
    """Every message must be in exactly one index, and the stored counts must match."""
    if messages == places and not wrong:
        return ("indexes", "ok", f"{messages} messages, each in one index; counts agree")
    text = f"{messages} messages in {places} places, {wrong} wrong counts; this is a bug in tampu, please report it"
    return ("indexes", "bad", text)


class Readers(Protocol):
    """Connections for reading."""

    def run(self, work: Callable[[Db], R]) -> R:
        """Run independent statements."""
        ...

    def run_in_snapshot(self, work: Callable[[Db], R]) -> R:
        """As `run`, in one snapshot for all statements."""
        ...


class BaseEngine(abc.ABC):
    registry: QueueRegistry
    readers: Readers
    driver: Translator
    verbs: Mapping[type[Any], Callable[[Any, Any], Sequence[Any]]]
    """Which function runs which call, in the order in which they run within a commit."""
    statements_may_commit = False
    """True if some SQL statements commit the open transaction, such as CREATE TABLE on MariaDB."""
    _listener: port.Listener | None = None
    _wakeup: Wakeup | None = None

    @abc.abstractmethod
    def fake_now(self) -> int | None:
        """The time to pass to statements; None: they use the server's clock."""

    @abc.abstractmethod
    def begin_joined(self, db: Db) -> Commit:
        """A commit inside the user's open transaction."""

    def notify_inside(self, db: Db) -> None:  # noqa: B027 - most have nothing to do
        """Wake waiting claims when the user's transaction commits."""

    @abc.abstractmethod
    def _run(self, calls: Sequence[port.Call]) -> list[Any | TampuError]:
        """Run calls in one commit."""

    def _run_one(self, call: port.Call) -> Any | TampuError:
        try:
            return self._run([call])[0]
        except TampuError as error:
            return error
        except Exception as error:
            hint = "this is a bug in tampu; please report it"
            failed = TampuError(f"{type(call).__name__.lower()} failed: {error!r}", hint=hint)
            failed.__cause__ = error
            return failed

    # -- reading

    def get(self, tenant: str, id: str, *, expired: bool = False) -> Message | None:
        now = 0 if expired else self.fake_now()
        return self.readers.run_in_snapshot(lambda db: read.get(db, self.registry, tenant, id, now))

    def page(
        self, tenant: str, queue: str, state: State, after: tuple[Any, ...] | None, limit: int
    ) -> port.Page | None:
        return self.readers.run_in_snapshot(lambda db: read.page(db, self.registry, tenant, queue, state, after, limit))

    def correlated(self, tenant: str, correlation_id: str, limit: int) -> list[Message]:
        return self.readers.run_in_snapshot(
            lambda db: read.correlated(db, self.registry, tenant, correlation_id, limit)
        )

    def stats(self, tenant: str, queue: str | None) -> list[port.QueueStats]:
        return self.readers.run(lambda db: read.stats(db, tenant, queue, self.fake_now()))

    def is_full(self) -> bool:
        return False  # only the server of the database knows

    def queues(self) -> list[tuple[str, str]]:
        return [(tenant, name) for tenant, name, _ in self.readers.run(lambda db: db.rows("list_queues"))]

    def journal(self, after: Position | None, limit: int, tenant: str | None) -> JournalPage:
        return self.readers.run_in_snapshot(lambda db: journal.read(db, self.registry, after, limit, tenant))

    def document(self, kind: str, tenant: str, name: str) -> port.Document | None:
        return self.readers.run(lambda db: documents.get(db, kind, tenant, name))

    def documents(
        self, kind: str, tenant: str, prefix: str = "", after: str = "", limit: int | None = None
    ) -> list[port.Document]:
        return self.readers.run(lambda db: documents.of_kind(db, kind, tenant, prefix, after, limit))

    def count_documents(self, kind: str, tenant: str) -> int:
        return int(self.readers.run(lambda db: db.value("count_documents", kind, tenant)))

    def all_documents(self) -> list[port.Document]:
        return self.readers.run(documents.every)

    def export_messages(
        self, tenant: str, queue: str, state: State, after: tuple[Any, ...] | None, limit: int
    ) -> SnapshotPage | None:
        now = self.fake_now()
        return self.readers.run_in_snapshot(
            lambda db: transfer.page(db, self.registry, tenant, queue, state, after, limit, now)
        )

    def export_idempotency_keys(self, tenant: str, after: tuple[Any, ...] | None, limit: int) -> RequestPage:
        now = self.fake_now()
        return self.readers.run_in_snapshot(lambda db: transfer.requests(db, self.registry, tenant, after, limit, now))

    def revision(self) -> int:
        return int(self.readers.run(lambda db: db.value("select_revision")))

    def next_due(self) -> int | None:
        times = self.readers.run(lambda db: db.row("select_next_due"))
        return min((at for at in times if at is not None), default=None)
