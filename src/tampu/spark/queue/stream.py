"""``readStream`` of a queue: messages are leased to a consumer, and settled after Spark has committed their batch.

Spark calls `latestOffset(start)` at every trigger, when everything up to ``start`` is in its commit log. There the
delivery log settles those messages and leases the next batch. `commit` comes too late for that (never for the last
batch), and `read` runs once per action and per attempt, so neither leases or settles anything.
"""

from __future__ import annotations

import logging
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructField, StructType

from tampu.broker import validate
from tampu.model.errors import InvalidConfig, InvalidState, StorageError
from tampu.model.message import State
from tampu.model.times import SECOND
from tampu.spark.options import Options, has_password
from tampu.spark.queue.deliveries import Deliveries
from tampu.spark.queue.delivery_log import MOST, Fenced, Piece, delivered, entries, settings_of
from tampu.spark.queue.heartbeat import Heartbeat
from tampu.spark.queue.settle import PLACE
from tampu.stores import columns
from tampu.stores.open_store import open_store
from tampu.stores.port import ArrowStore

_MANY = 5_000
_TRIES = 6
_BATCH_BYTES = 16 << 20
_HELD = 128 << 20
"""Maximum size of one fetch if all payloads have the queue's maximum size."""
_ASYNC = "asyncProgressTrackingEnabled"
# Null in deliveries: a message may have moved on when a batch is read again.
_ALWAYS_NULL = ("run_at", "ended_at", "reason", "result")

R = TypeVar("R")
Offset = dict[str, Any]
log = logging.getLogger("tampu.spark")


def schema(options: Options) -> StructType:
    """The columns of deliveries. Metadata of ``receipt`` names the stream, so that `settle` needs no arguments."""
    from pyspark.sql.pandas.types import from_arrow_schema

    place = {
        "consumer": options.required("consumer", "billing"),
        "queue": options.required("queue", "emails"),
        "tenant": options.text("tenant", "default"),
    }
    url = options.required("url", "jobs.db")
    if not has_password(url):  # the schema may be written to Parquet files, which must not contain a password
        place["url"] = url
    fields = [
        StructField(field.name, field.dataType, True, {PLACE: place} if field.name == "receipt" else None)
        for field in from_arrow_schema(columns.DELIVERIES)
    ]
    return StructType(fields)


class QueuePartition(InputPartition):
    def __init__(self, piece: Piece) -> None:
        super().__init__(None)
        self.piece = piece


class QueueStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Spark creates it in several processes. One of them, a child of the driver, owns the consumer."""

    def __init__(self, options: Options) -> None:
        self.url = options.required("url", "jobs.db")
        self.queue = validate.name(options.required("queue", "emails"), "queue")
        self.consumer = validate.name(options.required("consumer", "billing"), "consumer")
        self.tenant = validate.name(options.text("tenant", "default"), "tenant")
        self.lease = options.whole("leaseSeconds", 60) or 60
        self.takeover = options.whole("takeoverSeconds", self.lease, least=0) or 0
        most = options.whole("maxOffsetsPerTrigger", options.whole("maxMessagesPerTrigger", _MANY)) or _MANY
        if most > MOST:
            raise InvalidConfig(
                f"maxOffsetsPerTrigger is {most}", field="maxOffsetsPerTrigger", hint=f"at most {MOST} in a batch"
            )
        if options.flag(_ASYNC, False):
            raise InvalidConfig(
                "asynchronous progress tracking does not work with a queue: messages would be settled before their "
                "batch is committed",
                field=_ASYNC,
                hint="turn it off",
            )
        self.most = most
        self.pieces = options.whole("minPartitions", 1) or 1
        self._deliveries: Deliveries | None = None
        self._heartbeat: Heartbeat | None = None
        self._budget: int | None = None

    # -- called in the process that owns the consumer

    def initialOffset(self) -> Offset:
        return self._offset(0)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        if isinstance(limit, ReadAllAvailable):
            raise InvalidState(
                "trigger(once=True) does not report that its batch was committed, so it could not be settled",
                hint="use trigger(availableNow=True)",
            )
        most = min(limit.max_rows, self.most) if isinstance(limit, ReadMaxRows) else self.most
        begin = self._number(start)

        def latest() -> int:
            log = self._log()
            log.own()
            before = log.head.last
            end = log.latest(begin, most if self._budget is None else min(most, self._budget))
            if self._budget is not None:
                self._budget -= max(0, log.head.last - max(before, begin))
            return end

        end = self._with_retries(latest)
        self._keep_alive()
        return self._offset(end)

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self.most)

    def reportLatestOffset(self) -> Offset | None:
        """The offset after all ready messages, so that Spark shows the backlog."""
        log = self._log()
        if log.owned is None:
            return None
        ready = self._with_retries(lambda: log.store.counts(self.tenant, self.queue).get(State.READY, 0))
        return self._offset(log.owned.last + ready)

    def prepareForTriggerAvailableNow(self) -> None:
        """Limit the run to the number of live messages now, so that a publisher cannot keep it running."""
        counts = self._with_retries(lambda: self._log().store.counts(self.tenant, self.queue))
        self._budget = sum(counts.get(state, 0) for state in (State.READY, State.DELAYED, State.LEASED))

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        low, high = self._number(start), self._number(end)
        pieces = self._with_retries(lambda: self._log().pieces(low, high, self.pieces))
        self._keep_alive()
        return [QueuePartition(piece) for piece in pieces]

    def commit(self, end: Offset) -> None:
        """Nothing to do: the next `latestOffset` gets the same offset, and is also called for the last batch."""

    def stop(self) -> None:
        on_sigterm = signal.getsignal(signal.SIGTERM) is _exit
        if on_sigterm:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)  # Spark sends it soon, and this takes a moment
        heartbeat, self._heartbeat = self._heartbeat, None
        if heartbeat is not None:
            heartbeat.stop()
        deliveries, self._deliveries = self._deliveries, None
        if deliveries is not None:
            self._release(deliveries)
            deliveries.store.__exit__(None, None, None)
        if on_sigterm:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

    # -- called by tasks

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, QueuePartition)
        with open_store(self.url) as store:
            yield from rows(store, self.tenant, self.queue, partition.piece)

    # -- helpers

    def _log(self) -> Deliveries:
        if self._deliveries is None:
            self._deliveries = Deliveries(
                open_store(self.url),
                self.tenant,
                self.queue,
                self.consumer,
                lease_us=self.lease * SECOND,
                takeover_us=self.takeover * SECOND,
            )
        return self._deliveries

    def _keep_alive(self) -> None:
        if self._heartbeat is None:
            deliveries = self._log()
            self._heartbeat = Heartbeat(
                deliveries.beat, self.lease / 6, orphaned=lambda: self._release(deliveries), last=Fenced
            )
            self._heartbeat.start()
            _exit_on_sigterm()

    @staticmethod
    def _release(deliveries: Deliveries) -> None:
        try:
            deliveries.leave()
        except (Fenced, StorageError) as error:
            log.warning("could not release the consumer, it expires by itself: %s", error)

    def _offset(self, number: int) -> Offset:
        return {"delivery": number, "log": self._with_retries(lambda: self._log().identity())}

    def _number(self, offset: Offset) -> int:
        mine = self._with_retries(lambda: self._log().identity())
        if offset.get("log") != mine:
            raise InvalidState(
                f"the checkpoint does not belong to consumer {self.consumer} of queue {self.queue} in this store",
                hint="start with a new checkpointLocation, or use the consumer and store of the checkpoint",
            )
        return int(offset["delivery"])

    def _with_retries(self, work: Callable[[], R]) -> R:
        """Retry for some seconds while the store is away, because an error here ends the query."""
        for attempt in range(_TRIES):
            try:
                return work()
            except StorageError as error:
                if attempt == _TRIES - 1:
                    raise
                log.warning("the store does not answer, retrying: %s", error)
                time.sleep(0.1 * 2**attempt)
        raise AssertionError


def _exit_on_sigterm() -> None:
    """Spark ends the process of a source with SIGTERM. Turn it into an exception, so that `stop` runs."""
    in_main_thread = threading.current_thread() is threading.main_thread()
    if in_main_thread and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _exit)


def _exit(*_: object) -> NoReturn:
    sys.exit(0)


def rows(store: ArrowStore, tenant: str, queue: str, piece: Piece) -> Iterator[pa.RecordBatch]:
    """The deliveries of a piece with their messages, fewer at a time if messages are, or may be, large."""
    found = entries(store, tenant, piece)
    most = max(1, min(1000, _HELD // settings_of(store, tenant, queue).max_payload))
    at, step = 0, min(16, most)
    while at < len(found.ids):
        part = slice(at, at + step)
        numbers = {id: number for number, id in enumerate(found.ids[part], start=at)}
        table = store.by_ids(tenant, found.ids[part])
        if table.num_rows < len(numbers):
            log.warning("%d messages of a batch are no longer in the store", len(numbers) - table.num_rows)
        at += len(numbers)
        step = max(1, min(most, step * 4 if table.nbytes < _BATCH_BYTES // 4 else step // 2))
        places = [numbers[id] for id in table.column("id").to_pylist()]
        fixed: dict[str, pa.Array] = {
            "state": pa.array([State.LEASED.value] * len(places), pa.string()),
            "attempts": pa.array([found.attempts[place] for place in places], pa.int32()),
            "delivery": pa.array([piece.low + place for place in places], pa.int64()),
            "receipt": pa.array([delivered(found.receipts[place], piece.epoch) for place in places], pa.string()),
        } | {name: pa.nulls(len(places), columns.MESSAGES.field(name).type) for name in _ALWAYS_NULL}
        merged = pa.table(
            [fixed[name] if name in fixed else table.column(name) for name in columns.DELIVERIES.names],
            schema=columns.DELIVERIES,
        )
        yield from merged.combine_chunks().to_batches()
