"""Batch reads: a snapshot of messages, or a range of the journal, in parallel parts that are consistent.

What is read is fixed when the query is planned. Each action plans again: use `cache`, or save the result, to use it
twice.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from tampu.model.errors import InvalidConfig, NotFound
from tampu.model.journal import Position
from tampu.model.message import State
from tampu.model.states import TERMINAL
from tampu.spark import offsets, pushdown
from tampu.spark.options import Options
from tampu.spark.pushdown import PushFilters, Scope, Span
from tampu.stores import columns
from tampu.stores.open_store import open_existing, open_store
from tampu.stores.port import ArrowStore, MessageQuery

if TYPE_CHECKING:
    from collections.abc import Sequence

ALL = "*"
LEAST_TRANSITIONS = 20_000
"""Minimum length of a range of the journal: opening the store costs as much as reading this many."""
_TERMINAL = frozenset(TERMINAL)


def reader(kind: str, options: Options) -> DataSourceReader:
    if kind == "messages":
        return MessagesReader(options)
    if kind == "journal":
        return JournalReader(options)
    raise InvalidConfig(
        "only a stream can drain a queue",
        field="kind",
        hint='spark.readStream for "queue"; "messages" reads a queue without changing it',
    )


def message_columns(options: Options) -> pa.Schema:
    """The columns to read: those of the option ``columns``, or all."""
    found = columns.chosen(columns.MESSAGES, options.names("columns"))
    return found.append(columns.POSITION) if options.flag("includePosition", False) else found


def pieces(options: Options) -> int:
    """Into how many parts a long read is split."""
    return options.whole("minPartitions", 2 * (os.cpu_count() or 1)) or 1


def scope(options: Options) -> Scope:
    tenant = options.text("tenant", "default")
    return Scope(None if tenant == ALL else tenant, set(options.names("queue")) or None)


class MessagesReader(DataSourceReader):
    def __init__(self, options: Options) -> None:
        self._url = options.required("url", "jobs.db")
        self._pieces = pieces(options)
        self._columns = message_columns(options).names
        self._scope = scope(options)
        self._states = set(State) if not options.names("state") else {_state(name) for name in options.names("state")}
        self._ids: set[str] | None = None
        self._created = Span(options.time("createdFrom"), options.time("createdTo"))
        self._ended = Span(options.time("endedFrom"), options.time("endedTo"))
        if options.flag("pushdown", True):
            self.pushFilters = PushFilters(self._take)  # type: ignore[method-assign]  # see pushdown.py

    def _take(self, filter_: Filter) -> bool:
        """Narrow the read by a filter. True if Spark need not apply it again."""
        name, values = pushdown.column(filter_), pushdown.choices(filter_)
        if name in ("created_at", "ended_at"):
            if pushdown.is_not_null(filter_):
                self._states &= _TERMINAL if name == "ended_at" else self._states
                return True
            return (self._created if name == "created_at" else self._ended).take(filter_)
        if name not in ("tenant", "queue", "state", "id") or values is None:
            return name in ("tenant", "queue", "state", "id") and pushdown.is_not_null(filter_)
        if name == "state":
            self._states = {state for state in self._states if state.value in values}
        elif name == "id":
            self._ids = values if self._ids is None else self._ids & values
        else:
            return self._scope.take(name, values)
        return True

    def partitions(self) -> Sequence[InputPartition]:
        if self._scope.nothing or not self._states or self._ids == set():
            return []
        query = MessageQuery(
            tenant=self._scope.tenant,
            queues=tuple(sorted(self._scope.queues or ())),
            states=tuple(state for state in State if state in self._states),
            created_from=self._created.low,
            created_to=self._created.high,
            ended_from=self._ended.low,
            ended_to=self._ended.high,
            ids=None if self._ids is None else tuple(sorted(self._ids)),
            columns=tuple(name for name in self._columns if name != columns.POSITION.name),
        )
        with open_existing(self._url) as store:
            plan = store.plan(query, self._pieces)
        return [InputPartition((piece, dict(plan.position))) for piece in plan.pieces]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if partition.value is None:  # Spark passes such a partition if there is nothing to read
            return
        piece, position = partition.value
        with open_store(self._url) as store:
            for batch in store.messages(piece):
                yield _with_position(batch, position) if columns.POSITION.name in self._columns else batch


def _with_position(batch: pa.RecordBatch, position: Position) -> pa.RecordBatch:
    value = pa.scalar(msgspec.json.encode(position).decode(), pa.string())
    return batch.append_column(columns.POSITION, pa.repeat(value, batch.num_rows))


def _state(name: str) -> State:
    try:
        return State(name.lower())
    except ValueError:
        raise InvalidConfig(f"there is no state {name}", field="state", hint=f"one of {', '.join(State)}") from None


class JournalReader(DataSourceReader):
    def __init__(self, options: Options) -> None:
        self._url = options.required("url", "jobs.db")
        self._pieces = pieces(options)
        self._scope = scope(options)
        self._start = offsets.given(options, "startingOffsets", offsets.EARLIEST)
        self._end = offsets.given(options, "endingOffsets", offsets.LATEST)
        self._since = options.time("startingTime")
        self._fail = options.flag("failOnDataLoss", True)
        self._offset = Span()
        self._at = Span()
        if options.flag("pushdown", True):
            self.pushFilters = PushFilters(self._take)  # type: ignore[method-assign]  # see pushdown.py

    def _take(self, filter_: Filter) -> bool:
        """Narrow the read by a filter. True if Spark need not apply it again."""
        name, values = pushdown.column(filter_), pushdown.choices(filter_)
        if name == "offset":
            return pushdown.is_not_null(filter_) or self._offset.take(filter_)
        if name == "at":
            # A clock that went back leaves times out of order, so Spark must filter again.
            self._at.take(filter_)
        if name in ("tenant", "queue"):
            return pushdown.is_not_null(filter_) or (values is not None and self._scope.take(name, values))
        return False

    def partitions(self) -> Sequence[InputPartition]:
        if self._scope.nothing:
            return []
        with open_existing(self._url) as store:
            start, end = self._range(store)
        return [InputPartition(part) for part in offsets.split(start, end, self._pieces, LEAST_TRANSITIONS)]

    def _range(self, store: ArrowStore) -> tuple[Position, Position]:
        end = _earlier(offsets.resolve(store, self._end, offsets.LATEST), store.bounds()[1])
        start = offsets.resolve(store, self._start) if self._since is None else store.at_time(self._since)
        if self._offset.low is not None:
            start = _later(start, dict.fromkeys(start, self._offset.low - 1))
        if self._offset.high is not None:
            end = _earlier(end, dict.fromkeys(end, self._offset.high - 1))
        if self._at.low is not None:
            start = _later(start, store.at_time(self._at.low))
        if self._at.high is not None:
            end = _earlier(end, store.until_time(self._at.high))
        return offsets.retained(store, _earlier(start, end), end, self._fail), end

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if partition.value is not None:
            yield from read_range(self._url, partition.value, self._scope, self._fail)


def _later(one: Position, other: Position) -> Position:
    return {partition: max(offset, other.get(partition, 0)) for partition, offset in one.items()}


def _earlier(one: Position, other: Position) -> Position:
    """Partitions that were added in between are left out."""
    return {partition: min(offset, other[partition]) for partition, offset in one.items() if partition in other}


def read_range(url: str, part: offsets.Range, scope: Scope, fail: bool) -> Iterator[pa.RecordBatch]:
    """A range of the journal. Without ``fail``, skips what is trimmed while it is read."""
    queues = None if scope.queues is None else tuple(scope.queues)
    with open_store(url) as store:
        after = part.after
        while after < part.upto:
            try:
                for batch in store.journal(part.partition, after, part.upto, scope.tenant, queues):
                    yield batch
                    after = batch.column("offset")[-1].as_py()
                return
            except NotFound:
                if fail:
                    raise
                after = offsets.retained(store, {part.partition: after}, {part.partition: part.upto}, fail)[
                    part.partition
                ]
