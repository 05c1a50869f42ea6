"""Tables of the lake as DataFrames, for those who ask in Spark: read from the files that count and no others.

Where Spark has no file system for the lake (an object store without Hadoop's jars), executors fetch the files by
themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from tampu.lake import sheets
from tampu.lake.files import DataFile
from tampu.lake.hands import divided
from tampu.lake.snapshots import Snapshot
from tampu.model.errors import Unavailable
from tampu.stores.columns import ddl

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tampu.lake.storage import LakeTable

_TASKS = 32
_PATTERN = frozenset("*?[]{}\\")


def read(spark: SparkSession, found: Snapshot) -> DataFrame:
    """The rows of this version."""
    table = found.table
    if table.lake.format == "delta":
        return _native(spark, found)
    chosen = found.files()
    if not chosen:
        return spark.createDataFrame([], ddl(table.spec.schema))
    df: DataFrame | None = None
    ours = [file for file in chosen if "=" not in file.path]
    if ours:
        df = _read_files(spark, table, table.spec.schema, ours)
    for (day, tenant), group in _foreign(chosen).items():
        from pyspark.sql import functions as F

        known = {"day": F.lit(day).cast("date"), "tenant": F.lit(tenant)}
        inside = pa.schema([field for field in table.spec.schema if field.name not in known])
        part = _read_files(spark, table, inside, group)
        part = part.select(*[known[n].alias(n) if n in known else F.col(f"`{n}`") for n in table.spec.schema.names])
        df = part if df is None else df.unionByName(part)
    assert df is not None
    return df


def _native(spark: SparkSession, found: Snapshot) -> DataFrame:
    """Through the cluster's own Delta Lake."""
    root = _hadoop_root(found.table) or found.table.uri
    try:
        df = spark.read.format("delta").option("versionAsOf", found.version).load(root)
        # Through Spark Connect it is only looked for now.
        return df.select(*[f"`{name}`" for name in found.table.spec.schema.names if name in df.columns])
    except Exception as error:  # py4j's or Spark's, by how the session is connected
        if "DATA_SOURCE_NOT_FOUND" not in str(error):
            raise
        raise Unavailable(
            "this Spark has no Delta Lake",
            field="format",
            hint="leave --format out: the tables are the same; or start Spark with the jars, such as --conf"
            " spark.jars.packages=io.delta:delta-spark_2.13:VERSION",
        ) from None


def _foreign(chosen: Iterable[DataFile]) -> dict[tuple[str | None, str | None], list[DataFile]]:
    """Files that another program made of ours (OPTIMIZE): they lack the partition's columns."""
    groups: dict[tuple[str | None, str | None], list[DataFile]] = {}
    for file in chosen:
        if "=" in file.path:
            groups.setdefault((file.day, file.tenant), []).append(file)
    return groups


def _hadoop_root(table: LakeTable) -> str | None:
    """The table's folder as Spark's own readers know it; None if they can not reach it."""
    local = table.place.local
    if local is not None:
        return f"file://{local}"
    scheme = table.lake.scheme
    return None if scheme is None else f"{scheme}://{table.uri.partition('://')[2]}"


def _read_files(spark: SparkSession, table: LakeTable, schema: pa.Schema, chosen: Sequence[DataFile]) -> DataFrame:
    root = _hadoop_root(table)
    # Spark takes a path with such signs for a pattern; told not to, it reads each file several times.
    if root is not None and not _PATTERN & set(root):
        return spark.read.schema(ddl(schema)).parquet(*[f"{root}/{file.path}" for file in chosen])
    place = table.place
    tasks = divided([file.bare() for file in chosen], [file.size for file in chosen], _TASKS)

    def fetch(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from sheets.read_batches(place, schema, tasks[number])

    return spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(fetch, ddl(schema))
