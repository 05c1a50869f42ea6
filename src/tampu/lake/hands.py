"""Who does the work of a run: this process while there is little of it, else Spark's executors.

Every step of the pipeline is the same function over parts (a stretch of the journal, a data file, a tenant's day). It
reads and writes by itself and tells in a few words what it did. For a few thousand transitions that takes less time
here than starting a job would, let alone Spark. Only silver also needs rows brought together, by the one shuffle there
is.
"""

from __future__ import annotations

import contextlib
import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

import msgspec
import pyarrow as pa

from tampu.lake import sheets
from tampu.lake.files import DataFile
from tampu.lake.sheets import Sorted, Target
from tampu.model.decoders import from_json
from tampu.stores.columns import ddl

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FEW = 250_000
"""Rows that are worked on here."""
_ZONE = "spark.sql.session.timeZone"
_TOLD = pa.schema([("told", pa.string())])
_read_told = from_json(tuple[str, DataFile]).decode
_ROUNDS = 8
"""Tasks for each core, at most, so that large and small parts even out."""

Part = TypeVar("Part")
Batches = Iterable[pa.RecordBatch]


class Hands:
    def __init__(self, spark: Callable[[], SparkSession], few: int = FEW) -> None:
        self._spark = spark
        self._few = few

    @contextlib.contextmanager
    def spark(self) -> Iterator[SparkSession]:
        """The session while we work with it: a day is a day of UTC, whoever's session this is."""
        session = self._spark()
        before = session.conf.get(_ZONE, None)
        session.conf.set(_ZONE, "UTC")
        try:
            yield session
        finally:
            if before is None:
                session.conf.unset(_ZONE)
            else:
                session.conf.set(_ZONE, before)

    def enough(self, rows: int) -> bool:
        """Are so many rows worth a job?"""
        return rows > self._few

    def each(
        self, parts: Sequence[Part], act: Callable[[Part], Iterable[str]], sizes: Sequence[int], rows: int
    ) -> list[str]:
        """What is told of each part, in any order. ``sizes``: how the parts compare."""
        if not parts:
            return []
        if not self.enough(rows):
            return [told for part in parts for told in act(part)]
        with self.spark() as spark:
            tasks = divided(parts, sizes, _ROUNDS * parallelism(spark))

            def run(batches: Batches) -> Iterator[pa.RecordBatch]:
                for batch in batches:
                    for number in batch.column(0).to_pylist():
                        for part in tasks[number]:
                            for told in act(part):
                                yield pa.RecordBatch.from_arrays([pa.array([told], pa.string())], schema=_TOLD)

            found = spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(run, ddl(_TOLD)).collect()
            return [row[0] for row in found]

    def write(
        self,
        parts: Sequence[Part],
        act: Callable[[Part], Sorted],
        sizes: Sequence[int],
        rows: int,
        targets: Sequence[Target],
        tag: str,
    ) -> dict[str, list[DataFile]]:
        """Data files of the rows that each part gives; they count for nothing yet."""
        told = self.each(parts, lambda part: written(targets, tag, act(part)), sizes, rows)
        return listed(targets, told)

    def gathered(
        self,
        parts: Sequence[Part],
        read: Callable[[Part], Batches],
        sizes: Sequence[int],
        rows: int,
        schema: pa.Schema,
        spread: Spread,
        act: Callable[[pa.Table], Iterable[str]],
    ) -> list[str]:
        """The same over rows that are first brought together by ``spread``."""
        if not self.enough(rows):
            return list(act(_table((batch for part in parts for batch in read(part)), schema)))
        with self.spark() as spark:
            tasks = divided(parts, sizes, _ROUNDS * parallelism(spark))

            def fetch(batches: Batches) -> Iterator[pa.RecordBatch]:
                for batch in batches:
                    for number in batch.column(0).to_pylist():
                        for part in tasks[number]:
                            yield from read(part)

            def run(batches: Batches) -> Iterator[pa.RecordBatch]:
                for told in act(_table(batches, schema)):
                    yield pa.RecordBatch.from_arrays([pa.array([told], pa.string())], schema=_TOLD)

            whole = spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(fetch, ddl(schema))
            whole = spread(whole, parallelism(spark))
            return [row[0] for row in whole.mapInArrow(run, ddl(_TOLD)).collect()]


Spread = Callable[["DataFrame", int], "DataFrame"]
"""Brings rows that belong together into one task; told how many tasks run at once."""


def written(targets: Sequence[Target], tag: str, rows: Sorted) -> Iterator[str]:
    """Write rows, and tell of each file."""
    for name, file in sheets.write_rows({target.name: target for target in targets}, tag, rows):
        yield msgspec.json.encode((name, file)).decode()


def listed(targets: Sequence[Target], told: Iterable[str]) -> dict[str, list[DataFile]]:
    found: dict[str, list[DataFile]] = {target.name: [] for target in targets}
    for one in told:
        name, file = _read_told(one)
        found[name].append(file)
    return found


def _table(batches: Batches, schema: pa.Schema) -> pa.Table:
    found = [batch for batch in batches if batch.num_rows]
    return pa.Table.from_batches(found).cast(schema) if found else schema.empty_table()


def divided(parts: Sequence[Part], sizes: Sequence[int], most: int) -> list[list[Part]]:
    """So many heaps at most, about as large as one another."""
    heaps: list[list[Part]] = [[] for _ in range(max(1, min(len(parts), most)))]
    least = [(0, number) for number in range(len(heaps))]
    for place in sorted(range(len(parts)), key=lambda place: (-sizes[place], place)):
        size, number = heapq.heappop(least)
        heaps[number].append(parts[place])
        heapq.heappush(least, (size + sizes[place], number))
    return heaps


def parallelism(spark: SparkSession) -> int:
    """Tasks that run at once; a guess where only the cluster knows (Spark Connect)."""
    context = getattr(spark, "_sc", None)
    return max(1, context.defaultParallelism) if context is not None else 8
