"""The small interface between Spark and a store. Another engine is another file that fills it, and the same tests.

Everything is called in short-lived Python processes, on the driver or on executors: a store opens quickly, keeps no
threads, and what travels between processes is a plain pickled value.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import msgspec
import pyarrow as pa

from tampu.engines.port import Call, Document, PutDocument
from tampu.model.journal import Position
from tampu.model.message import State
from tampu.stores import columns

Run = Callable[[Sequence[Call]], list[Any]]
"""Carries out calls; the first error is raised."""


class MessageQuery(msgspec.Struct, frozen=True):
    """Which messages a snapshot is of. Times are microseconds since 1970, the end not included."""

    tenant: str | None = "default"
    """None: all tenants."""
    queues: tuple[str, ...] = ()
    """() for all queues of the tenant."""
    states: tuple[State, ...] = tuple(State)
    created_from: int | None = None
    created_to: int | None = None
    ended_from: int | None = None
    ended_to: int | None = None
    ids: tuple[str, ...] | None = None
    columns: tuple[str, ...] = tuple(columns.MESSAGES.names)
    """What the rows must have, in this order."""


class SnapshotPlan(msgspec.Struct, frozen=True):
    position: Position
    """Where the journal was: the messages are as this position left them, whenever the pieces are read."""
    pieces: Sequence[bytes]
    """Each is enough for another process to read its part."""


class Step(msgspec.Struct, frozen=True):
    """What one commit takes of a job that takes many: calls, and a note of how far the job has come then."""

    calls: Sequence[Call]
    """Carried out in their order."""
    note: Callable[[int], PutDocument]
    """Made when its turn has come, of the version that the note before it has."""


class ArrowStore(Protocol):
    joint: bool
    """Can `transaction` be had? Where not, calls that store messages remember it themselves (`Load.remember_us`), and
    only changes of documents are all or none."""

    remote: bool
    """A server is behind it, which builds the calls that store messages once more, with its publish steps."""

    def __enter__(self) -> ArrowStore: ...

    def __exit__(self, *exc: object) -> None: ...

    # -- the verbs of the port, in one commit

    def run(self, calls: Sequence[Call]) -> list[Any]:
        """All calls in one commit; the first error is raised. A store takes `Load` whether its engine does or not."""
        ...

    def together(self, calls: Sequence[Call]) -> list[Any]:
        """Calls one after the other, in one commit where the store can; else those that store messages remember it."""
        ...

    def aside(self, calls: Sequence[Call]) -> list[Any]:
        """As `together`, for what may be lost when the store crashes."""
        ...

    def in_turn(self, steps: Iterable[Step], version: int) -> Generator[list[Any], None, None]:
        """Commit after commit, in this order; the replies of each when it has committed, that of its note last.

        Each is as `together`. ``version`` is that of the note that is there. Steps may be fetched ahead of their turn.
        """
        ...

    def transaction(self) -> AbstractContextManager[Run]:
        """Several runs that take effect together when the block ends, or not at all when an error leaves it."""
        ...

    def document(self, kind: str, tenant: str, name: str) -> Document | None: ...

    def documents(self, kind: str, tenant: str) -> list[Document]: ...

    def within(self, queue: str | None) -> ArrowStore:
        """The store for a job that publishes to one queue only (None: to any). A server keeps what belongs to the job
        apart by it, for those who may publish there."""
        ...

    def staging(self) -> str | None:
        """A folder that the driver and all executors can reach and write; None if the store knows none."""
        ...

    def now(self) -> int: ...

    # -- the journal

    def bounds(self) -> tuple[Position, Position]:
        """(the position before the first transition that is still there, the end)"""
        ...

    def at_time(self, at_us: int) -> Position:
        """The position before the first transition at or after a time."""
        ...

    def until_time(self, at_us: int) -> Position:
        """The position of the last transition before a time."""
        ...

    def journal(
        self, partition: str, after: int, upto: int, tenant: str | None, queues: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Transitions with after < offset <= upto in the columns of `columns.JOURNAL`, of one tenant or of all.

        Raises `NotFound` when some of them were trimmed.
        """
        ...

    # -- messages

    def plan(self, query: MessageQuery, pieces: int) -> SnapshotPlan: ...

    def messages(self, piece: bytes) -> Iterator[pa.RecordBatch]:
        """In the columns of the query. Raises `NotFound` when a message was removed since the plan."""
        ...

    def counts(self, tenant: str, queue: str) -> Mapping[State, int]:
        """How many messages of a queue are in each state."""
        ...

    def by_ids(self, tenant: str, ids: Sequence[str]) -> pa.Table:
        """Messages as they are now, in the order asked for; what is gone is left out."""
        ...
