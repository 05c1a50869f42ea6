"""Redis and Valkey as an Arrow store. Driver and executors each connect to it.

Redis cannot roll back, and one script changes only keys of one slot. All documents are in one slot, so several change
in one script, all or none. Messages are not: see `ArrowStore.joint`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

import pyarrow as pa

from tampu.engines.port import Call, DeleteDocument, PutDocument
from tampu.model.errors import InvalidConfig
from tampu.stores.port import MessageQuery, SnapshotPlan
from tampu.stores.redis import messages
from tampu.stores.redis.journal import RedisJournal


class RedisStore(RedisJournal):
    joint = False

    def run(self, calls: Sequence[Call]) -> list[Any]:
        documents = [call for call in calls if isinstance(call, PutDocument | DeleteDocument) and call.kind != "queue"]
        return self.engine.change(documents) if calls and len(documents) == len(calls) else super().run(calls)

    def transaction(self) -> NoReturn:
        raise InvalidConfig(
            "Redis cannot make several changes in one commit",
            field="url",
            hint="leave out atomic, or use another store",
        )

    def plan(self, query: MessageQuery, pieces: int) -> SnapshotPlan:
        return messages.plan(self.engine, query, pieces)

    def messages(self, piece: bytes) -> Iterator[pa.RecordBatch]:
        return messages.read(self.engine, piece)

    def by_ids(self, tenant: str, ids: Sequence[str]) -> pa.Table:
        return messages.by_ids(self.engine, tenant, ids)
