"""Tables of the lake as DataFrames: read from the files that count and no others.

Where Spark has no file system for the lake (an object store without Hadoop's jars), executors fetch the files by
themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from tampu.lake.storage import parquet
from tampu.lake.storage.files import DataFile
from tampu.lake.storage.snapshots import Snapshot
from tampu.model.errors import Unavailable
from tampu.stores.columns import ddl

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tampu.lake.storage.lake import LakeTable

FILE = "_file"
"""Where asked for: the name of the file that a row is in."""
_TASKS = 32
_PATTERN = frozenset("*?[]{}\\")


def read(spark: SparkSession, found: Snapshot) -> DataFrame:
    """The rows of this version, for those who ask in Spark."""
    if found.table.lake.format == "delta":
        return _native(spark, found)
    return read_files(spark, found.table, found.files())


def read_files(
    spark: SparkSession, table: LakeTable, chosen: Sequence[DataFile], *, with_file: bool = False
) -> DataFrame:
    """The rows of some files."""
    schema = table.spec.schema.append(pa.field(FILE, pa.string())) if with_file else table.spec.schema
    if not chosen:
        return local(spark, schema.empty_table())
    root = _hadoop_root(table)
    # Files that another program made of ours (OPTIMIZE) lack the partition's columns. A path with signs of a pattern
    # would be one to Spark; with that forbidden, it reads each file several times.
    if root is None or _PATTERN & set(root) or any("=" in file.path for file in chosen):
        return _fetched(spark, table, schema, chosen)
    found = spark.read.schema(ddl(table.spec.schema)).parquet(*[f"{root}/{file.path}" for file in chosen])
    return found.selectExpr("*", f"_metadata.file_name AS {FILE}") if with_file else found


def local(spark: SparkSession, rows: pa.Table) -> DataFrame:
    """A few rows that the driver has. Spark plans nothing for an empty table, but reads an empty list."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return spark.createDataFrame(rows, from_arrow_schema(rows.schema))  # Spark Connect needs the schema besides


def _fetched(spark: SparkSession, table: LakeTable, schema: pa.Schema, chosen: Sequence[DataFile]) -> DataFrame:
    place, known = table.place, table.spec.schema
    bare = [file.bare() for file in chosen]
    tasks = [bare[n::_TASKS] for n in range(min(len(bare), _TASKS))]

    def fetch(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for file in (file for number in batch.column(0).to_pylist() for file in tasks[number]):
                for rows in parquet.read_batches(place, known, [file]):
                    named = pa.repeat(file.path.rpartition("/")[2], rows.num_rows)
                    more = [named] if FILE in schema.names else []
                    yield pa.RecordBatch.from_arrays([*rows.columns, *more], schema=schema)

    return spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(fetch, ddl(schema))


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


def _hadoop_root(table: LakeTable) -> str | None:
    """The table's folder as Spark's own readers know it; None if they cannot reach it."""
    local = table.place.local
    if local is not None:
        return f"file://{local}"
    scheme = table.lake.scheme
    return None if scheme is None else f"{scheme}://{table.uri.partition('://')[2]}"
