"""The interface between Spark and a store. A new engine implements it and runs the same tests.

Spark calls it in short-lived Python processes, on the driver and on executors: a store opens quickly and keeps no
threads, and values that travel between processes are plain and can be pickled.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Self

import msgspec
import pyarrow as pa

from tampu.engines.port import Call, Document, PutDocument
from tampu.model.journal import Position
from tampu.model.message import State
from tampu.stores import columns

Run = Callable[[Sequence[Call]], list[Any]]
"""Runs calls; raises the first error."""


class MessageQuery(msgspec.Struct, frozen=True):
    """Which messages a snapshot has. Times are microseconds since 1970; the end is excluded."""

    tenant: str | None = "default"
    """None: all tenants."""
    queues: tuple[str, ...] = ()
    """(): all queues of the tenant."""
    states: tuple[State, ...] = tuple(State)
    created_from: int | None = None
    created_to: int | None = None
    ended_from: int | None = None
    ended_to: int | None = None
    ids: tuple[str, ...] | None = None
    columns: tuple[str, ...] = tuple(columns.MESSAGES.names)
    """Columns of the rows, in this order."""


class SnapshotPlan(msgspec.Struct, frozen=True):
    position: Position
    """Journal position of the snapshot: the messages are in the state of this position, whenever pieces are read."""
    pieces: Sequence[bytes]
    """Each contains what another process needs to read its part."""


class Step(msgspec.Struct, frozen=True):
    """One commit of a job that needs many: its calls, and a document that records the job's progress."""

    calls: Sequence[Call]
    """Run in this order."""
    note: Callable[[int], PutDocument]
    """Builds the progress document, given the version of the one before."""


def one_by_one(together: Run, steps: Iterable[Step], version: int) -> Generator[list[Any], None, None]:
    """Run the steps of a job one after the other; see `ArrowStore.in_turn`."""
    for step in steps:
        replies = together([*step.calls, step.note(version)])
        version = replies[-1]
        yield replies


class ArrowStore(abc.ABC):
    joint = True
    """True if `transaction` works. If not, loads remember what they stored (`Load.remember_us`), and only changes of
    documents are all or none."""

    remote = False
    """True for an HTTP server, which rebuilds publishes itself and runs its own publish steps."""

    def __enter__(self) -> Self:
        return self

    @abc.abstractmethod
    def __exit__(self, *exc: object) -> None: ...

    # -- the verbs of the port, in one commit

    @abc.abstractmethod
    def run(self, calls: Sequence[Call]) -> list[Any]:
        """All calls in one commit; raises the first error. A store takes `Load` even if its engine does not."""

    @abc.abstractmethod
    def together(self, calls: Sequence[Call]) -> list[Any]:
        """Calls one after the other, in one commit if the store is `joint`."""

    def aside(self, calls: Sequence[Call]) -> list[Any]:
        """As `together`, for changes that may be lost when the store crashes."""
        return self.together(calls)

    def in_turn(self, steps: Iterable[Step], version: int) -> Generator[list[Any], None, None]:
        """Commit the steps in order, each as in `together`. Yields the replies of each commit, that of its note last.

        ``version`` is that of the current progress document. Steps may be fetched before the one before has committed.
        """
        return one_by_one(self.together, steps, version)

    @abc.abstractmethod
    def transaction(self) -> AbstractContextManager[Run]:
        """Several runs that commit together at the end of the block, or not at all if it raises."""

    @abc.abstractmethod
    def document(self, kind: str, tenant: str, name: str) -> Document | None: ...

    @abc.abstractmethod
    def documents(self, kind: str, tenant: str, prefix: str = "") -> list[Document]: ...

    def within(self, queue: str | None) -> Self:  # noqa: ARG002 - for those who override it
        """The store for a job that publishes to one queue (None: to any). A server scopes the documents of the job by
        queue, so that keys which may publish there can use them."""
        return self

    def staging(self) -> str | None:
        """A folder that driver and executors can write to; None if the store knows none."""
        return None

    @abc.abstractmethod
    def now(self) -> int: ...

    # -- the journal

    @abc.abstractmethod
    def bounds(self) -> tuple[Position, Position]:
        """(the position before the first stored transition, the end)"""

    @abc.abstractmethod
    def at_time(self, at_us: int) -> Position:
        """The position before the first transition at or after a time."""

    @abc.abstractmethod
    def until_time(self, at_us: int) -> Position:
        """The position of the last transition before a time."""

    @abc.abstractmethod
    def journal(
        self, partition: str, after: int, upto: int, tenant: str | None, queues: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Transitions with after < offset <= upto in the columns of `columns.JOURNAL`, of one tenant or of all.

        Raises `NotFound` if some of them were trimmed.
        """

    # -- messages

    @abc.abstractmethod
    def plan(self, query: MessageQuery, pieces: int) -> SnapshotPlan: ...

    @abc.abstractmethod
    def messages(self, piece: bytes) -> Iterator[pa.RecordBatch]:
        """The messages of a piece. Raises `NotFound` if a message was removed since the plan."""

    @abc.abstractmethod
    def counts(self, tenant: str, queue: str) -> Mapping[State, int]:
        """Number of messages of a queue by state."""

    @abc.abstractmethod
    def by_ids(self, tenant: str, ids: Sequence[str]) -> pa.Table:
        """Messages as they are now, in the order of ``ids``, without those that are gone."""
