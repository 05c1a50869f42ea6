"""Redis and Valkey as an Arrow store. Driver and executors each connect to it.

Redis cannot roll back, and one script changes only keys of one slot. All documents are in one slot, so several change
in one script, all or none. Messages are not: see `ArrowStore.joint`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

import pyarrow as pa

from tampu.engines.port import Call, DeleteDocument, PutDocument
from tampu.engines.redis import RedisEngine
from tampu.model.errors import InvalidConfig
from tampu.model.journal import Position
from tampu.stores.engine_store import EngineStore
from tampu.stores.port import MessageQuery, Run, SnapshotPlan
from tampu.stores.redis import journal, messages


class RedisStore(EngineStore[RedisEngine]):
    joint = False

    def run(self, calls: Sequence[Call]) -> list[Any]:
        documents = [call for call in calls if isinstance(call, PutDocument | DeleteDocument) and call.kind != "queue"]
        return self.engine.change(documents) if calls and len(documents) == len(calls) else super().run(calls)

    def transaction(self) -> AbstractContextManager[Run]:
        raise InvalidConfig(
            "Redis cannot make several changes in one commit",
            field="url",
            hint="leave out atomic, or use another store",
        )

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
