"""The writers of ``format("tampu")``, which publish a DataFrame.

Tasks check, pack and stage their rows; the driver publishes what the winning attempts staged, once. With
``onCommit=false`` tasks publish themselves, with ids that make a repeated publish harmless.
"""

from __future__ import annotations

import secrets
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from tampu.broker import validate
from tampu.model.errors import InvalidConfig, InvalidMessage
from tampu.spark.options import Options
from tampu.spark.write import bad_rows, staging
from tampu.spark.write.columns import choose
from tampu.spark.write.publish import JOBS, STREAMS, Job, Part, Publisher
from tampu.spark.write.rows import Packer
from tampu.spark.write.staging import Area
from tampu.stores.open_store import open_store
from tampu.stores.port import ArrowStore

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class Task(msgspec.Struct, frozen=True):
    """The Spark task that runs in this process."""

    partition: int
    attempt: str
    query: str | None
    """Query id of a stream; it belongs to the checkpoint."""
    batch: int


@dataclass
class Staged(WriterCommitMessage):
    """What one task did."""

    part: Part
    total: int
    """Good and bad rows."""
    folder: str
    bad: int
    reasons: list[str]
    """Errors of the first bad rows."""
    bad_where: str | None
    query: str | None
    batch: int
    queues: Counter[str] = field(default_factory=Counter)


class _Writer:
    """Base of the batch and the stream writer."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self.url = options.required("url", "jobs.db")
        self.tenant = validate.name(options.text("tenant", "default"), "tenant")
        self.queue = options.text("queue")
        if self.queue is not None:
            validate.name(self.queue, "queue")
        ignore = options.choice("unknownColumns", ("fail", "ignore"), "fail") == "ignore"
        self.columns = choose(schema, self.queue, ignore=ignore)
        self.payload_format = options.choice("payloadFormat", ("auto", "json"), "auto")
        self.on_commit = options.flag("onCommit", True)
        self.atomic = options.flag("atomic", False)
        if self.atomic and not self.on_commit:
            raise InvalidConfig("atomic and onCommit=false exclude each other", field="atomic", hint="leave out one")
        self.staging = options.text("staging")
        aside = options.text("badRows", "fail") or "fail"
        self.bad_rows = None if aside == "fail" else bad_rows.folder(aside)
        self.unique = secrets.token_hex(6)

    # -- in a task

    def write_rows(self, iterator: Iterator[pa.RecordBatch], task: Task) -> Staged:
        """Stage the rows of a task; with ``onCommit=false``, publish them instead."""
        with open_store(self.url) as store:
            job = self._job_of(task)
            publisher = Publisher(store, job)
            publisher.check_able()
            packer = Packer(self.queue, self.payload_format, publisher.settings)
            area, folder, name = self._area(store), self._folder(job), f"{task.partition}-{task.attempt}"
            good = area.stage(folder, name)
            bad = bad_rows.BadRows(area.stage(folder, f"{name}-bad"), keep=self.bad_rows is not None)
            skip = not self.on_commit and publisher.finished()
            total = 0
            try:
                for given in iterator:
                    if skip:
                        continue
                    batch = given.select(list(self.columns)).rename_columns(list(self.columns.values()))
                    packed, faults = packer.pack(batch, total)
                    total += len(batch)
                    bad.add(batch, faults, job.shown, task.partition)
                    if not self.on_commit:
                        if bad.count and self.bad_rows is None:
                            raise bad_rows.error(bad.count, total, bad.reasons, published=True)
                        publisher.check_open(packer.queues)
                        for piece in staging.pieces(packed) if len(packed) else ():
                            calls = publisher.calls(task.partition, piece)
                            if calls.copies:
                                store.together([*calls.rows, *calls.copies])
                            else:
                                store.run(calls.rows)
                    elif not (bad.count and self.bad_rows is None):
                        good.add(packed)
            except BaseException:
                good.discard()
                bad.discard()
                raise
            good.close()
            bad.close()
        part = Part(task.partition, good.where if good.rows else None, good.rows)
        return Staged(part, total, folder, bad.count, bad.reasons, bad.where, task.query, task.batch, packer.queues)

    def _area(self, store: ArrowStore) -> Area:
        return staging.area(store.within(self.queue), self.tenant, self.staging)

    def _job_of(self, task: Task) -> Job:
        raise NotImplementedError

    def _folder(self, job: Job) -> str:
        return staging.folder_name(job.name, self.unique if job.batch < 0 else str(job.batch))

    # -- on the driver

    def publish_staged(self, messages: Sequence[Staged], job: Job) -> None:
        """Publish what the winning attempts staged, once."""
        with open_store(self.url) as store:
            area = self._area(store)
            publisher = Publisher(store, job)
            if not publisher.finished():
                self._save_bad_rows(area, messages, job)
                coming: Counter[str] = Counter()
                for message in messages:
                    coming.update(message.queues)
                if self.on_commit:
                    publisher.check_open(coming)
                    publisher.check_room(coming)
            if self.on_commit:
                publisher.publish([message.part for message in messages], area)
            else:
                publisher.mark_done(sum(message.total - message.bad for message in messages))
            area.clean()
            self._remove_staged(area, messages)

    def _remove_staged(self, area: Area, messages: Sequence[Staged]) -> None:
        for folder in {message.folder for message in messages}:
            area.remove(folder)

    def _save_bad_rows(self, area: Area, messages: Sequence[Staged], job: Job) -> None:
        count = sum(message.bad for message in messages)
        if count and self.bad_rows is None:
            reasons = [reason for message in messages for reason in message.reasons]
            raise bad_rows.error(count, sum(message.total for message in messages), reasons)
        for message in messages:
            if message.bad_where is not None and self.bad_rows is not None:
                bad_rows.keep(area.read(message.bad_where), self.bad_rows, job.id, message.part.partition)


class BatchWriter(_Writer, DataSourceArrowWriter):
    def __init__(self, options: Options, schema: StructType) -> None:
        super().__init__(options, schema)
        given = options.text("jobId")
        if given is not None:
            validate.text(given, "jobId", 200)
        self.job = Job(
            self.tenant, self.queue, JOBS, given or str(uuid.uuid4()), remembered=given is not None, atomic=self.atomic
        )

    def _job_of(self, task: Task) -> Job:  # noqa: ARG002 - a stream's depends on it
        return self.job

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        return self.write_rows(iterator, current_task())

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self.publish_staged(_staged(messages), self.job)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:  # noqa: ARG002 - the folder is all of it
        with open_store(self.url) as store:
            self._area(store).remove(self._folder(self.job))


class StreamWriter(_Writer, DataSourceStreamArrowWriter):
    """Spark creates it for each batch, and again for its commit: data for the commit travels in the messages."""

    def __init__(self, options: Options, schema: StructType) -> None:
        super().__init__(options, schema)
        self.stream = options.text("streamId")
        if self.stream is not None:
            validate.text(self.stream, "streamId", 200)

    def _stream(self, query: str | None) -> str:
        stream = self.stream or query
        if stream is None:
            raise InvalidConfig(
                "the query has no id", field="streamId", hint='.option("streamId", "a unique name for this stream")'
            )
        return stream

    def _job(self, query: str | None, batch: int) -> Job:
        name = self._stream(query)
        return Job(
            self.tenant, self.queue, STREAMS, name, remembered=True, atomic=self.atomic, batch=batch, query=query
        )

    def _job_of(self, task: Task) -> Job:
        return self._job(task.query, task.batch)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        return self.write_rows(iterator, current_task())

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        staged = _staged(messages)
        if staged:
            self.publish_staged(staged, self._job(staged[0].query, batchId))

    def _remove_staged(self, area: Area, messages: Sequence[Staged]) -> None:
        """Batches come one after the other, so nothing that this stream staged is needed any more."""
        area.clean_owner(self._stream(messages[0].query))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002 - Spark's
        with open_store(self.url) as store:
            _Writer._remove_staged(self, self._area(store), _staged(messages))


def current_task() -> Task:
    context = TaskContext.get()
    if context is None:
        raise InvalidMessage("rows are written inside a Spark task", hint="use df.write")
    # Spark sets both for every task of a micro-batch; a batch job has neither.
    query = context.getLocalProperty("sql.streaming.queryId")
    batch = context.getLocalProperty("streaming.sql.batchId")
    attempt = f"{context.taskAttemptId()}-{secrets.token_hex(4)}"
    return Task(context.partitionId(), attempt, query, -1 if batch is None else int(batch))


def _staged(messages: Iterable[WriterCommitMessage | None]) -> list[Staged]:
    return [message for message in messages if isinstance(message, Staged)]
