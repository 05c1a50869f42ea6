"""Spark jobs of a run: the settings they need, and the one that writes the data files of several tables at once.

Tasks write Parquet files by themselves and tell what they wrote; the driver then makes the files count. So a lake needs
no jars, is on the disk before anybody hears of it, and a step of a run is one job however many tables it fills.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from tampu.lake.storage import parquet
from tampu.lake.storage.files import DataFile
from tampu.lake.storage.parquet import Target
from tampu.model.decoders import from_json

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FEW = 250_000
"""Rows up to which planning costs more than work: generated code is left out, and one task is enough."""
_MOST = 1_000_000
"""Rows of a shuffle partition, at most."""
_READ = 125_000
"""Rows that a task reads out of files, about: the last tasks of a job are small, so all cores work to its end."""
_ALWAYS = {
    "spark.sql.adaptive.enabled": "false",  # each shuffle would be a job of its own, and planned anew
    "spark.sql.session.timeZone": "UTC",  # a day is a day of UTC, whoever's session this is
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",  # no job to list files that we know
    "spark.sql.codegen.hugeMethodLimit": "8000",  # Java never compiles larger ones
    "spark.sql.files.openCostInBytes": "65536",  # files are many and small: tasks share them by size
}
_PLAIN = {
    "spark.sql.parquet.enableVectorizedReader": "true",
    # With a limit, Spark computes the size of a batch anew for each row that it gives to Python.
    "spark.sql.execution.arrow.maxBytesPerBatch": str((1 << 31) - 1),
}
_PAYLOADS = {"spark.sql.parquet.enableVectorizedReader": "false"}  # it holds thousands of rows at once
_SMALL = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.files.minPartitionNum": "1",  # small files are read by one task together
    "spark.sql.ui.explainMode": "simple",
}
_told = from_json(tuple[str, DataFile]).decode

Batches = Iterable[pa.RecordBatch]
Rows = tuple["DataFrame", Callable[[Batches], Batches] | None]
"""A frame, and what an executor makes of its batches before they are written."""


@contextlib.contextmanager
def configured(spark: SparkSession, rows: int, *, payloads: bool = False) -> Iterator[None]:
    """Set the session up for this number of rows, and restore the user's settings afterwards.

    ``payloads`` may be large: there a batch of rows must not be as large as it happens to be.
    """
    wanted = _ALWAYS | (_PAYLOADS if payloads else _PLAIN)
    wanted |= _SMALL if rows <= FEW else _shares(spark, rows)
    before = {name: spark.conf.get(name, None) for name in wanted}
    try:
        for name, value in wanted.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, known in before.items():
            spark.conf.unset(name) if known is None else spark.conf.set(name, known)


def _shares(spark: SparkSession, rows: int) -> dict[str, str]:
    """A shuffle has as many parts as the user's session says, but none without work for it, and none that is too large.
    Files are read in smaller parts: of Spark's, one for each core, none takes as long as the other."""
    parts = min(int(spark.conf.get("spark.sql.shuffle.partitions") or 1), -(-rows // FEW))
    return {
        "spark.sql.shuffle.partitions": str(max(parts, -(-rows // _MOST))),
        "spark.sql.files.minPartitionNum": str(-(-rows // _READ)),
    }


def kept(frame: DataFrame) -> DataFrame:
    """The frame, computed once and kept on the executors' disks."""
    from pyspark import StorageLevel

    return frame.localCheckpoint(storageLevel=StorageLevel.DISK_ONLY)


def write(outputs: Mapping[str, Rows], targets: Mapping[str, Target], tag: str) -> dict[str, list[DataFile]]:
    """Data files of these tables, which count for nothing yet. One job."""
    found: dict[str, list[DataFile]] = {name: [] for name in outputs}
    written = [
        frame.mapInArrow(_writer(name, targets[name], tag, made), "told string")
        for name, (frame, made) in outputs.items()
    ]
    for row in functools.reduce(lambda one, other: one.union(other), written).collect():
        name, file = _told(row[0])
        found[name].append(file)
    return found


def _writer(
    name: str, target: Target, tag: str, made: Callable[[Batches], Batches] | None
) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    def write(batches: Batches) -> Iterator[pa.RecordBatch]:
        for file in parquet.write_batches(target, tag, batches if made is None else made(batches)):
            yield pa.RecordBatch.from_arrays([pa.array([msgspec.json.encode((name, file)).decode()])], ["told"])

    return write
