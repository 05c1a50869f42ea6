"""Base of the stores on SQL servers. Each server adds two things: how to hold a snapshot, and how to scan rows."""

from __future__ import annotations

import abc
import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import pyarrow as pa

from tampu.engines.sql.db import Db
from tampu.engines.sql.engine import SqlEngine
from tampu.model.journal import Position
from tampu.stores.engine_store import EngineStore
from tampu.stores.port import MessageQuery, SnapshotPlan
from tampu.stores.sql import journal, messages
from tampu.stores.sql.rows import Walk

R = TypeVar("R")
E = TypeVar("E", bound=SqlEngine)


class SqlStore(EngineStore[E], abc.ABC):
    @abc.abstractmethod
    def snapshot(self, work: Callable[[Db], R]) -> tuple[int, R]:
        """Number the journal and run a query in exactly that snapshot. Returns (last journal offset, result)."""

    @abc.abstractmethod
    def walking(self) -> contextlib.AbstractContextManager[Walk]:
        """A function that reads messages which are close together, valid inside the block."""

    def bounds(self) -> tuple[Position, Position]:
        return journal.bounds(self.engine)

    def at_time(self, at_us: int) -> Position:
        return journal.at_time(self.engine, at_us)

    def until_time(self, at_us: int) -> Position:
        return journal.until_time(self.engine, at_us)

    def journal(
        self, partition: str, after: int, upto: int, tenant: str | None, queues: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        return journal.read(self.engine, partition, after, upto, tenant, queues)

    def plan(self, query: MessageQuery, pieces: int) -> SnapshotPlan:
        return messages.plan(self.snapshot, self.engine, query, pieces)

    def messages(self, piece: bytes) -> Iterator[pa.RecordBatch]:
        with self.walking() as walk:
            yield from messages.read(walk, self.engine, piece)

    def by_ids(self, tenant: str, ids: Sequence[str]) -> pa.Table:
        return messages.by_ids(self.engine, tenant, ids)
