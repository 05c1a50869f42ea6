"""`readStream` of the journal: offsets that can be read again, so an idempotent sink gets each transition exactly once.

An offset is a position, ``{"0": n}``. A stream that begins at the end has a first offset that says only that: where the
end was is settled by the first, empty batch, and so is the same when that batch is repeated after a crash.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from tampu.model.errors import InvalidConfig
from tampu.model.journal import Position
from tampu.spark import offsets
from tampu.spark.options import Options
from tampu.spark.reading import LEAST_TRANSITIONS, pieces, read_range, scope
from tampu.spark.stores.opening import open_store
from tampu.spark.stores.port import Store

_FROM = "from"
Offset = dict[str, int] | dict[str, str]


class JournalStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: Options) -> None:
        self._url = options.required("url", "jobs.db")
        self._pieces = pieces(options)
        self._scope = scope(options)
        self._start = offsets.given(options, "startingOffsets", offsets.LATEST)
        self._since = options.time("startingTime")
        self._most = options.whole("maxOffsetsPerTrigger", options.whole("maxMessagesPerTrigger", None))
        self._fail = options.flag("failOnDataLoss", True)
        self._target: Position | None = None
        if options.text("endingOffsets") is not None:
            raise InvalidConfig("a stream has no end", field="endingOffsets", hint="leave it out, or use spark.read")

    def initialOffset(self) -> Offset:
        if self._since is None and self._start == offsets.LATEST:
            return {_FROM: offsets.LATEST}
        with open_store(self._url) as store:
            return store.at_time(self._since) if self._since is not None else offsets.resolve(store, self._start)

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable() if self._most is None else ReadMaxRows(self._most)

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self.reportLatestOffset()

    def reportLatestOffset(self) -> Position:
        with open_store(self._url) as store:
            return store.bounds()[1]

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        with open_store(self._url) as store:
            latest = store.bounds()[1] if self._target is None else self._target
            if _FROM in start:
                return latest
            begin = self._retained(store, start, {})
        left = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        end = {}
        for partition, offset in begin.items():
            news = max(0, latest.get(partition, 0) - offset)
            taken = news if left is None else min(news, left)
            left = None if left is None else left - taken
            end[partition] = offset + taken
        return end

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        if _FROM in start:
            return []
        upto = {partition: int(offset) for partition, offset in end.items()}
        with open_store(self._url) as store:
            begin = self._retained(store, start, upto)
        return [InputPartition(part) for part in offsets.split(begin, upto, self._pieces, LEAST_TRANSITIONS)]

    def _retained(self, store: Store, start: Offset, end: Position) -> Position:
        return offsets.retained(store, {name: int(offset) for name, offset in start.items()}, end, self._fail)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_range(self._url, partition.value, self._scope, self._fail)
