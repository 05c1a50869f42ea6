"""Publishes staged rows chunk by chunk, each in one commit with the progress of the job.

A run that repeats the job after a crash between any two commits continues from the stored progress. The progress is a
document; its version lets only one driver at a time continue a job.

A store without joint commits gets the messages first, then the progress. Messages that come twice, after a crash in
between, are detected by number: the store remembers the last number of each partition in the same step that stores the
messages, even if they are done and gone by then.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tampu.broker import publish, publish_steps, settings, validate
from tampu.broker.settings import Settings
from tampu.engines.port import Call, DeleteDocument, PutDocument
from tampu.model.decoders import from_json
from tampu.model.errors import InvalidConfig, InvalidState, QueueFull, TampuError, VersionConflict
from tampu.model.states import LIVE
from tampu.model.times import SECOND
from tampu.spark.write import rows, staging
from tampu.spark.write.staging import Area
from tampu.stores.port import ArrowStore, Step, one_by_one

JOBS = "spark-job"
STREAMS = "spark-stream"
KEPT_US = 30 * 86_400 * SECOND
"""How long the progress of a job with a given id is kept."""


class Part(msgspec.Struct, frozen=True):
    """What the winning attempt of one partition staged."""

    partition: int
    where: str | None
    rows: int


class Entry(msgspec.Struct, frozen=True):
    """The progress of one job, or of the latest batch of a stream."""

    shape: str
    """Digest of the number of rows in each partition. The same job must have the same rows."""
    total: int
    at_us: int
    done: bool = False
    partition: int = 0
    row: int = 0
    """All rows before this one in this partition, and all earlier partitions, are published."""
    batch: int = -1
    query: str | None = None
    """For a stream: the query that writes it."""


_read = from_json(Entry).decode


class Job(msgspec.Struct, frozen=True):
    """What is published, and the name of its progress document."""

    tenant: str
    queue: str | None
    kind: str
    name: str
    """Name of the progress document."""
    remembered: bool
    """Keep the progress when all is done, because the job may run again."""
    atomic: bool = False
    batch: int = -1
    query: str | None = None

    @property
    def id(self) -> str:
        return self.name if self.batch < 0 else f"{self.name}\0{self.batch}"

    @property
    def shown(self) -> str:
        """Its name for people."""
        return self.name if self.batch < 0 else f"{self.name}/{self.batch}"


class Calls(msgspec.Struct):
    """Calls that publish staged rows."""

    rows: Sequence[Call] = ()
    copies: Sequence[Call] = ()
    """Calls for copies of rows, which publish steps have added."""

    def add(self, more: Calls) -> None:
        self.rows = [*self.rows, *more.rows]
        self.copies = [*self.copies, *more.copies]


def id_prefix(tenant: str, job: str, partition: int) -> bytes:
    """Prefix of the ids of a partition's messages: a UUIDv8 from tenant, job and partition."""
    raw = bytearray(hashlib.blake2b(f"{tenant}\0{job}\0{partition}".encode(), digest_size=11).digest())
    raw[6] = 0x80 | raw[6] & 0x0F
    raw[8] = 0x80 | raw[8] & 0x3F
    return bytes(raw)


class Publisher:
    def __init__(self, store: ArrowStore, job: Job) -> None:
        self._store = store.within(job.queue)
        self._job = job
        self._known_settings: dict[str, Settings] = {}
        self._remember_us = 0 if store.joint else KEPT_US
        self._counted: deque[int] = deque()
        """For each running step, the number of calls that store rows; the calls after them store copies."""

    # -- progress

    def entry(self) -> tuple[Entry | None, int]:
        """The progress of the job, and the version of its document."""
        document = self._store.document(self._job.kind, self._job.tenant, self._job.name)
        return (None, 0) if document is None else (_read(document.value), document.version)

    def finished(self) -> bool:
        """True if all of it was published before."""
        entry, _ = self.entry()
        if entry is None:
            return False
        if self._job.kind == STREAMS:
            if entry.query != self._job.query:
                raise InvalidState(
                    f"the stream {self._job.name} was written by another query, whose batches have the same numbers",
                    hint="use a new streamId for a query with a new checkpoint",
                )
            return entry.batch > self._job.batch or (entry.batch == self._job.batch and entry.done)
        return entry.done

    def begun(self) -> bool:
        """True if some of it was published before."""
        entry, _ = self.entry()
        return entry is not None and entry.batch == self._job.batch

    def mark_done(self, total: int) -> None:
        """Record that the tasks have published everything themselves."""
        entry, version = self.entry()
        shape = "" if entry is None else entry.shape
        done = Entry(shape, total, self._store.now(), done=True, batch=self._job.batch, query=self._job.query)
        if self._job.remembered and not self.finished():
            self._store.run([self._put(done, version)])

    def _put(self, entry: Entry, version: int) -> PutDocument:
        job = self._job
        return PutDocument(job.kind, job.tenant, job.name, msgspec.json.encode(entry), version)

    # -- publishing

    def check_able(self) -> None:
        """Refuse ``atomic`` if the store does not support it."""
        if self._job.atomic and not self._store.joint:
            raise InvalidConfig(
                "this store cannot publish a whole job in one commit",
                field="atomic",
                hint="leave it out: rows become visible chunk by chunk, none twice; or use a file or a SQL server",
            )

    def check_open(self, names: Iterable[str]) -> None:
        """Refuse queues that do not accept messages."""
        for name in names:
            validate.check_open(name, self.settings(name))

    def check_room(self, coming: Mapping[str, int]) -> None:
        """Refuse, before anything is published, more messages than the max_depth of a queue allows."""
        begun = self.begun()
        for name, count in coming.items():
            most = self.settings(name).max_depth
            if most and not begun:
                held = self._store.counts(self._job.tenant, name)
                live = sum(held.get(state, 0) for state in LIVE)
                if live + count > most:
                    raise QueueFull(
                        f"queue {name} has {live} of at most {most} live messages: {count} more do not fit",
                        field="queue",
                        hint="write when workers have caught up, or raise max_depth",
                    )

    def publish(self, parts: Sequence[Part], area: Area) -> int:
        """Publish what was staged. Returns how many rows this run published: 0 if the job was finished before."""
        job = self._job
        parts = sorted(parts, key=lambda part: part.partition)
        shape, total = _shape(parts), sum(part.rows for part in parts)
        entry, version = self.entry()
        if entry is not None and entry.batch < job.batch:
            entry = None  # of an earlier batch
        if self.finished():
            if entry is not None and entry.shape != shape and job.kind == JOBS:
                raise _other_rows(job)
            return 0
        if entry is not None and entry.shape != shape:
            if job.kind == JOBS:
                raise _other_rows(job)
            entry = None  # a repeated batch of a stream has other rows: those already stored are found by id
        start = (0, 0) if entry is None else (entry.partition, entry.row)
        begun = entry is not None
        fresh = Entry(shape, total, self._store.now(), batch=job.batch, query=job.query)
        published = 0
        self._counted.clear()
        steps = self._steps(parts, area, start, fresh)
        try:
            with contextlib.ExitStack() as whole:
                if job.atomic:
                    run = whole.enter_context(self._store.transaction())
                    # One call at a time, because a run may reorder its calls.
                    done = one_by_one(lambda calls: [run([call])[0] for call in calls], steps, version)
                else:
                    done = whole.enter_context(contextlib.closing(self._store.in_turn(steps, version)))
                for *replies, _ in done:
                    published += sum(stored(reply) for reply in replies[: self._counted.popleft()])
                    begun = True
        except VersionConflict:
            raise InvalidState(
                f"another driver has continued {job.kind} {job.name} meanwhile",
                hint="let one of them finish; nothing was published twice",
            ) from None
        except TampuError as error:
            if published and job.kind == JOBS and not job.atomic:
                error.hint = f"{published} of {total} rows are published; jobId={job.name} continues from there"
            raise
        self._forget(begun)
        return published

    def _forget(self, begun: bool) -> None:
        """Remove progress that is no longer needed: of a job with a random id, and of old jobs."""
        job, limit = self._job, self._store.now() - KEPT_US
        if job.kind == JOBS:
            old = [
                document.name
                for document in self._store.documents(JOBS, job.tenant)
                if _read(document.value).at_us < limit
            ]
            names = [job.name, *old] if begun and not job.remembered else old
            if names:
                self._store.run([DeleteDocument(JOBS, job.tenant, name) for name in names])

    def _steps(self, parts: Sequence[Part], area: Area, start: tuple[int, int], fresh: Entry) -> Iterator[Step]:
        for chunk, (partition, row) in self._chunks(parts, area, start):
            now = msgspec.structs.replace(fresh, partition=partition, row=row, done=partition > parts[-1].partition)
            # The job can only be repeated with the name from an error message, and then its progress is stored.
            once = not self._job.remembered
            made = Calls()
            for number, batch in chunk:
                made.add(self.calls(number, batch, once=once))
            self._counted.append(len(made.rows))
            yield Step([*made.rows, *made.copies], functools.partial(self._put, now))

    def _chunks(
        self, parts: Sequence[Part], area: Area, start: tuple[int, int]
    ) -> Iterator[tuple[list[tuple[int, pa.RecordBatch]], tuple[int, int]]]:
        """The batches of each commit, and where the next one begins: after the last partition for the last commit."""
        chunk: list[tuple[int, pa.RecordBatch]] = []
        size = count = 0
        first, row = start
        for part in parts:
            if part.where is None or part.partition < first:
                continue
            for batch in area.read(part.where):
                if part.partition == first and row:
                    batch = batch.filter(pc.greater_equal(batch.column("row"), row))  # noqa: PLW2901 - the rest of it
                if not len(batch):
                    continue
                if chunk and (count + len(batch) > staging.MOST_ROWS or size + batch.nbytes > staging.MOST_BYTES):
                    yield chunk, (part.partition, batch.column("row")[0].as_py())
                    chunk, size, count = [], 0, 0
                chunk.append((part.partition, batch))
                size, count = size + batch.nbytes, count + len(batch)
        if chunk:
            yield chunk, (parts[-1].partition + 1, 0)

    def calls(self, partition: int, batch: pa.RecordBatch, *, once: bool = False) -> Calls:
        """The calls that publish a staged batch, queue by queue, in the order of the rows. ``once``: the stored
        progress alone prevents duplicates."""
        start = id_prefix(self._job.tenant, self._job.id, partition)
        column = batch.column("queue")
        if column.null_count == len(batch):
            return self._calls(self._job.queue or "", start, batch, once)
        made = Calls()
        for name in pc.unique(column).to_pylist():
            chosen = pc.is_null(column) if name is None else pc.fill_null(pc.equal(column, name), False)
            made.add(self._calls(self._job.queue or "" if name is None else name, start, batch.filter(chosen), once))
        return made

    def _calls(self, queue: str, start: bytes, batch: pa.RecordBatch, once: bool) -> Calls:
        tenant, current = self._job.tenant, self.settings(queue)
        numbers = batch.column("row").to_pylist()
        bodies, more = batch.column("body"), batch.column("more")
        steps = not self._store.remote and publish_steps.wanted(queue, current)
        if more.null_count == len(batch) and not steps:
            kinds = batch.column("type")
            plain = kinds.null_count == len(batch)
            types = [rows.NO_TYPE] * len(batch) if plain else pc.fill_null(kinds, rows.NO_TYPE).to_pylist()
            load = publish.load_call(
                tenant,
                queue,
                current,
                start,
                numbers,
                *_buffer(bodies),
                types,
                remember_us=self._remember_us,
                position_in_same_commit=once,
            )
            return Calls([load])
        items = [
            rows.item(packed, rest, current.max_attempts, message_id(start, number))
            for packed, rest, number in zip(bodies.to_pylist(), more.to_pylist(), numbers, strict=True)
        ]
        if not steps:
            return Calls([publish.publish_call(tenant, queue, current, items, remember_us=self._remember_us)])
        made = publish.prepare_items(tenant, queue, items, self.settings, remember_us=self._remember_us)
        return Calls(made.rows, made.copies)

    def settings(self, queue: str) -> Settings:
        if queue not in self._known_settings:
            store, tenant = self._store, self._job.tenant
            if store.remote:  # the server runs the publish steps
                self._known_settings[queue] = settings.read(store.document, tenant, queue)
            else:
                self._known_settings[queue] = settings.read_with_policies(store, tenant, queue)
        return self._known_settings[queue]


def stored(reply: Any) -> int:
    """Number of new messages in a reply."""
    return reply if isinstance(reply, int) else sum(not message.duplicate for message in reply)


def message_id(start: bytes, number: int) -> str:
    """The id of a row of a partition."""
    text = (start + number.to_bytes(5, "big")).hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def _buffer(bodies: pa.BinaryArray) -> tuple[memoryview, list[int]]:
    """The bytes of a column, and where each value begins."""
    _, offsets, data = bodies.buffers()
    starts = memoryview(offsets).cast("i")[bodies.offset : bodies.offset + len(bodies) + 1].tolist()
    first = starts[0]
    part = memoryview(data)[first : starts[-1]]
    return part, starts if not first else [place - first for place in starts]


def _shape(parts: Sequence[Part]) -> str:
    text = ",".join(f"{part.partition}:{part.rows}" for part in parts if part.rows)
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


def _other_rows(job: Job) -> InvalidState:
    return InvalidState(
        f"the job {job.name} began with other rows or partitions",
        hint="repeat a jobId only with the same rows in the same partitions; use a new one for new rows",
    )
