"""The embedded file as a store for Spark. Executors open the file themselves, so they are on its machine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from tampu.engines.sqlite import SqliteEngine
from tampu.model.journal import Position
from tampu.spark.stores import sqlite_journal, sqlite_messages
from tampu.spark.stores.engines import EngineStore
from tampu.spark.stores.port import MessageQuery, SnapshotPlan


class SqliteStore(EngineStore[SqliteEngine]):
    def staging(self) -> str | None:
        return f"{self.engine.path}-stage"

    def bounds(self) -> tuple[Position, Position]:
        return sqlite_journal.bounds(self.engine)

    def at_time(self, at_us: int) -> Position:
        return sqlite_journal.at_time(self.engine, at_us)

    def until_time(self, at_us: int) -> Position:
        return sqlite_journal.until_time(self.engine, at_us)

    def journal(
        self, partition: str, after: int, upto: int, tenant: str | None, queues: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        return sqlite_journal.read(self.engine, partition, after, upto, tenant, queues)

    def plan(self, query: MessageQuery, pieces: int) -> SnapshotPlan:
        return sqlite_messages.plan(self.engine, query, pieces)

    def messages(self, piece: bytes) -> Iterator[pa.RecordBatch]:
        return sqlite_messages.read(self.engine, piece)

    def by_ids(self, tenant: str, ids: Sequence[str]) -> pa.Table:
        return sqlite_messages.by_ids(self.engine, tenant, ids)
