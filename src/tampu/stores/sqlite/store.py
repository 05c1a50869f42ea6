"""The embedded file as an Arrow store. Executors open the file themselves, so they must run on its machine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from tampu.engines.sqlite import SqliteEngine
from tampu.model.journal import Position
from tampu.stores.engine_store import EngineStore
from tampu.stores.port import MessageQuery, SnapshotPlan
from tampu.stores.sqlite import journal, messages


class SqliteStore(EngineStore[SqliteEngine]):
    def staging(self) -> str | None:
        return f"{self.engine.path}-stage"

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
        return messages.plan(self.engine, query, pieces)

    def messages(self, piece: bytes) -> Iterator[pa.RecordBatch]:
        return messages.read(self.engine, piece)

    def by_ids(self, tenant: str, ids: Sequence[str]) -> pa.Table:
        return messages.by_ids(self.engine, tenant, ids)
