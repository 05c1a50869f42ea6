"""Writers worked by hand: the calls that Spark makes, in this process, without Spark."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql.types import LongType, StringType, StructField, StructType

from tampu.engines.port import PutDocument
from tampu.spark.options import Options
from tampu.spark.write import staging
from tampu.spark.write import writer as write_writer
from tampu.spark.write.writer import BatchWriter, Staged, StreamWriter, Task
from tampu.stores.open_store import open_store
from tampu.stores.port import ArrowStore

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


class WriteTasks:
    """Says which task the next write is of."""

    def __init__(self) -> None:
        self._attempts = 0
        self.task = Task(0, "0", None, -1)
        self.stores: dict[str, ArrowStore] = {}

    def close(self) -> None:
        for store in self.stores.values():
            store.__exit__(None, None, None)

    def write(
        self,
        writer: BatchWriter | StreamWriter,
        payloads: Sequence[str | None],
        partition: int = 0,
        query: str | None = None,
        batch: int = -1,
    ) -> Staged:
        return self.write_batches(writer, batches(payloads), partition, query, batch)

    def write_batches(
        self,
        writer: BatchWriter | StreamWriter,
        given: Sequence[pa.RecordBatch],
        partition: int = 0,
        query: str | None = None,
        batch: int = -1,
    ) -> Staged:
        self._attempts += 1
        self.task = Task(partition, str(self._attempts), query, batch)
        return writer.write(iter(given))


def write_tasks(monkeypatch: Any) -> WriteTasks:
    """All parts of a job in this process; they share an open store, for opening one is most of what they would do."""
    made = WriteTasks()
    stores: dict[str, ArrowStore] = {}

    def opened(url: str) -> contextlib.AbstractContextManager[ArrowStore]:
        if url not in stores:
            stores[url] = open_store(url)
        return contextlib.nullcontext(stores[url])

    monkeypatch.setattr(write_writer, "current_task", lambda: made.task)
    monkeypatch.setattr(write_writer, "open_store", opened)
    made.stores = stores
    return made


def joint(url: str) -> bool:
    with open_store(url) as store:
        return store.joint


def staged(url: str) -> list[str]:
    """The folders that hold staged rows of jobs for the queue ``jobs``."""
    with open_store(url) as opened:
        store = opened.within("jobs")
        place = store.staging()
        if place is None:
            names = [document.name for document in store.documents(staging.STAGED_NAMES, "default")]
            assert names or not store.documents(staging.STAGED_ROWS, "default"), "rows that nobody finds"
            return sorted({name.partition("/")[0] for name in names})
        return sorted(folder.name for folder in Path(place).iterdir()) if Path(place).exists() else []


def make_old(url: str, folder: str) -> None:
    """As if nobody had written there for a long time."""
    with open_store(url) as opened:
        store = opened.within("jobs")
        place = store.staging()
        if place is not None:
            for entry in (*Path(place, folder).iterdir(), Path(place, folder)):
                os.utime(entry, (1, 1))
        for document in store.documents(staging.STAGED_NAMES, "default"):
            if document.name.startswith(folder):
                old = msgspec.json.decode(document.value) | {"at_us": 1}
                store.run([PutDocument(staging.STAGED_NAMES, "default", document.name, msgspec.json.encode(old))])


def unstage(url: str, folder: str) -> None:
    with open_store(url) as store:
        staging.area(store.within("jobs"), "default", None).remove(folder)


class Died(Exception):
    pass


class Reaper:
    """Lets a driver die at its nth step: before or after a transaction, or at a call inside one."""

    def __init__(self, monkeypatch: Any, url: str) -> None:
        self.left = -1
        with open_store(url) as store:
            kind: Any = type(store)
        real = kind.transaction

        @contextlib.contextmanager
        def transaction(store: Any) -> Any:
            self.step()
            with real(store) as inner:

                def stepping(calls: Any) -> Any:
                    self.step()
                    replies = inner(calls)
                    self.step()
                    return replies

                yield stepping
            self.step()

        def counted(verb: Any) -> Any:
            def call(*args: Any) -> Any:
                self.step()
                reply = verb(*args)
                self.step()
                return reply

            return call

        monkeypatch.setattr(kind, "transaction", transaction)
        monkeypatch.setattr(kind, "run", counted(kind.run))
        monkeypatch.setattr(kind, "document", counted(kind.document))

    def step(self) -> None:
        if self.left == 0:
            raise Died
        self.left -= 1
