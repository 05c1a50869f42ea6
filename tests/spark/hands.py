"""Writers worked by hand: the calls that Spark makes, in this process, without Spark."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.types import LongType, StringType, StructField, StructType

from tampu.spark import writing
from tampu.spark.options import Options
from tampu.spark.stores.sqlite import SqliteStore
from tampu.spark.writing import BatchWriter, Staged, StreamWriter, Task

TEXT = StructType([StructField("payload", StringType())])
NUMBERED = StructType([*TEXT, StructField("max_attempts", LongType())])


def batch_writer(url: str, schema: StructType = TEXT, **options: Any) -> BatchWriter:
    return BatchWriter(Options({"url": url, "queue": "jobs", **options}), schema)


def stream_writer(url: str, **options: Any) -> StreamWriter:
    return StreamWriter(Options({"url": url, "queue": "jobs", **options}), TEXT)


def batches(payloads: Sequence[str | None], size: int = 10) -> list[pa.RecordBatch]:
    return [
        pa.record_batch([pa.array(payloads[i : i + size], pa.string())], names=["payload"])
        for i in range(0, len(payloads), size)
    ]


class Hands:
    """Says which task the next write is of."""

    def __init__(self) -> None:
        self._attempts = 0
        self.task = Task(0, "0", None, -1)

    def write(
        self,
        writer: BatchWriter | StreamWriter,
        payloads: Sequence[str | None],
        partition: int = 0,
        query: str | None = None,
        batch: int = -1,
    ) -> Staged:
        self._attempts += 1
        self.task = Task(partition, str(self._attempts), query, batch)
        return writer.write(iter(batches(payloads)))


def hands(monkeypatch: Any) -> Hands:
    made = Hands()
    monkeypatch.setattr(writing, "current_task", lambda: made.task)
    return made


class Died(Exception):
    pass


class Reaper:
    """Lets a driver die at its nth step: before or after a transaction, or at a call inside one."""

    def __init__(self, monkeypatch: Any) -> None:
        self.left = -1
        run, document = SqliteStore.run, SqliteStore.document
        real = SqliteStore.transaction

        def transaction(store: SqliteStore) -> Any:
            @contextlib.contextmanager
            def work() -> Any:
                self.step()
                with real(store) as inner:

                    def stepping(calls: Any) -> Any:
                        self.step()
                        replies = inner(calls)
                        self.step()
                        return replies

                    yield stepping
                self.step()

            return work()

        def counted(verb: Any) -> Any:
            def call(*args: Any) -> Any:
                self.step()
                return verb(*args)

            return call

        monkeypatch.setattr(SqliteStore, "transaction", transaction)
        monkeypatch.setattr(SqliteStore, "run", counted(run))
        monkeypatch.setattr(SqliteStore, "document", counted(document))

    def step(self) -> None:
        if self.left == 0:
            raise Died
        self.left -= 1
