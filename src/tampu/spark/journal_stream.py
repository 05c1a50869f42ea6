"""`readStream` of the journal. Offsets can be read again, so an idempotent sink gets each transition exactly once.

An offset is a position, ``{"0": n}``. A partition that it does not name was added later and is read from its beginning.
A stream that starts at the end has a first offset that says only "latest". The first, empty batch fixes where the end
was, so it is the same if that batch is repeated after a crash.
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
from tampu.spark.read import LEAST_TRANSITIONS, pieces, read_range, scope
from tampu.stores.open_store import open_existing, open_store
from tampu.stores.port import ArrowStore

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
        with open_existing(self._url) as store:
            return store.at_time(self._since) if self._since is not None else offsets.resolve(store, self._start)

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable() if self._most is None else ReadMaxRows(self._most)

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self.reportLatestOffset()

    def reportLatestOffset(self) -> Position:
        with open_existing(self._url) as store:
            return store.bounds()[1]

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        with open_existing(self._url) as store:
            latest = store.bounds()[1] if self._target is None else self._target
            if _FROM in start:
                return latest
            begin = self._retained(store, start, latest)
        news = {partition: max(0, latest.get(partition, 0) - offset) for partition, offset in begin.items()}
        taken = news if not isinstance(limit, ReadMaxRows) else share_fairly(news, limit.max_rows)
        return {partition: offset + taken[partition] for partition, offset in begin.items()}

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        if _FROM in start:
            return []
        upto = {partition: int(offset) for partition, offset in end.items()}
        with open_store(self._url) as store:
            begin = self._retained(store, start, upto)
        return [InputPartition(part) for part in offsets.split(begin, upto, self._pieces, LEAST_TRANSITIONS)]

    def _retained(self, store: ArrowStore, start: Offset, end: Position) -> Position:
        begun = {name: int(offset) for name, offset in start.items()}
        return offsets.retained(store, dict.fromkeys(end, 0) | begun, end, self._fail)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_range(self._url, partition.value, self._scope, self._fail)


def share_fairly(news: Position, most: int) -> Position:
    """At most ``most`` new transitions, from each partition in proportion, so that none waits for another."""
    total, taken = sum(news.values()), {}
    for partition, count in sorted(news.items(), key=lambda one: one[1]):
        taken[partition] = min(count, -(-most * count // total) if total else 0)
        total, most = total - count, most - taken[partition]
    return taken
