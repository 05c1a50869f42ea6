"""The embedded file as a store for Spark. Executors open the file themselves, so they are on its machine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Self

import pyarrow as pa

from tampu.engines.port import Call, Document
from tampu.engines.sqlite import SqliteEngine
from tampu.model.errors import TampuError
from tampu.model.journal import Position
from tampu.model.message import State
from tampu.opening import make_engine
from tampu.spark.stores import sqlite_journal, sqlite_messages
from tampu.spark.stores.port import MessageQuery, Run, SnapshotPlan


class SqliteStore:
    def __init__(self, url: str) -> None:
        engine = make_engine(url)
        assert isinstance(engine, SqliteEngine)
        self.engine = engine

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.engine.close()

    def run(self, calls: Sequence[Call]) -> list[Any]:
        return _without_errors(self.engine.run(calls))

    @contextmanager
    def transaction(self) -> Iterator[Run]:
        with self.engine.transaction(None) as work:
            yield lambda calls: _without_errors(work.run(calls))

    def document(self, kind: str, tenant: str, name: str) -> Document | None:
        return self.engine.document(kind, tenant, name)

    def documents(self, kind: str, tenant: str) -> list[Document]:
        return self.engine.documents(kind, tenant)

    def staging(self) -> str | None:
        return f"{self.engine.path}-stage"

    def now(self) -> int:
        return self.engine.now()

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

    def counts(self, tenant: str, queue: str) -> Mapping[State, int]:
        return next((stats.counts for stats in self.engine.stats(tenant, queue)), {})

    def by_ids(self, tenant: str, ids: Sequence[str]) -> pa.Table:
        return sqlite_messages.by_ids(self.engine, tenant, ids)


def _without_errors(replies: list[Any]) -> list[Any]:
    for reply in replies:
        if isinstance(reply, TampuError):
            raise reply
    return replies
