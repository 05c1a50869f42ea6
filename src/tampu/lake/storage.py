"""The lake's tables on disk or in an object store: Delta tables without jars, through delta-rs.

Executors write data files; the driver makes them count with one entry in the table's log. That entry also carries how
far into the journal the table has come, so rows and position are one commit. An entry is only made on the version that
was read: of two runs at once the second is refused.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from tampu.lake import files
from tampu.lake.files import DataFile, Place, Via
from tampu.lake.tables import BY_NAME, PARTITION_BY, Table
from tampu.model.errors import InvalidConfig, NotFound, SchemaMismatch, Unavailable, VersionConflict
from tampu.model.journal import Position
from tampu.spark.columns import ddl

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame, SparkSession

VERSION = "tampu.version"
_TRIES = 5
_TASKS = 32
_PATTERN = frozenset("*?[]{}\\")
_SPARK = "spark."
"""Options that begin so are for us; the others reach delta-rs."""


Drop = Callable[[list[DataFile]], list[DataFile]]
"""Of the files that count, those that shall not any more."""


class Mark(msgspec.Struct, frozen=True):
    """What a commit says of itself: whose it is, which run, and how far the table has come with it."""

    reader: str
    run: int
    position: Position
    note: str = ""


class Lake:
    def __init__(self, path: str | Path, options: Mapping[str, str] | None = None) -> None:
        options = dict(options or {})
        text = str(path)
        if not text:
            raise InvalidConfig("the lake has no path", field="lake", hint="for example jobs.lake or s3://bucket/lake")
        local = files.local_path(text)
        self.uri = str(local.absolute()) if local is not None else text.rstrip("/")
        self.local = local.absolute() if local is not None else None
        self.options = {name: value for name, value in options.items() if not name.startswith(_SPARK)}
        self.scheme = options.get("spark.scheme")
        """With it Spark's own Parquet reader is used for a lake that is elsewhere: s3a, abfss, gs …"""
        self.format = options.get("spark.format", "parquet")
        """``delta``: Spark reads the tables through its own Delta Lake, where the cluster has the jars."""
        if self.format not in ("parquet", "delta"):
            raise InvalidConfig(
                f"a lake can not be read as {self.format}", field="format", hint="parquet (the default), or delta"
            )

    def table(self, table: str | Table, *, parted: bool = True) -> LakeTable:
        spec = BY_NAME[table] if isinstance(table, str) else table
        return LakeTable(self, spec, parted=parted)

    def present(self) -> list[str]:
        """The tables that there are."""
        return [name for name in BY_NAME if self.table(name).exists()]


class LakeTable:
    def __init__(self, lake: Lake, spec: Table, *, parted: bool = True) -> None:
        self.lake = lake
        self.spec = spec
        self.parted = parted
        self.uri = f"{lake.uri}/{spec.path}"
        self.place = Place(self.uri, lake.options)

    @property
    def _parts(self) -> list[str]:
        return list(PARTITION_BY) if self.parted else []

    # -- being there

    def exists(self) -> bool:
        from deltalake import DeltaTable

        if self.place.local is not None and not (self.place.local / "_delta_log").is_dir():
            return False
        return bool(DeltaTable.is_deltatable(self.uri, self.lake.options or None))

    def create(self, properties: Mapping[str, str] | None = None) -> Snapshot:
        """Open the table, made or given its new columns where needed."""
        from deltalake import DeltaTable

        if not self.exists():
            if self.place.local is not None:
                files.make_folders(self.place.local)
            DeltaTable.create(
                self.uri,
                schema=self.spec.schema,
                mode="ignore",
                partition_by=self._parts or None,
                name=self.spec.name,
                description=self.spec.about,
                configuration={VERSION: str(self.spec.version), **(properties or {})},
                storage_options=self.lake.options or None,
                raise_if_key_not_exists=False,
            )
            self._settle(0)
        self._mend()
        found = self.open()
        found.check_version()
        return found if found.schema_version() == self.spec.version else self._evolve(found)

    def _evolve(self, found: Snapshot) -> Snapshot:
        """Columns of a newer version of ours are added; nothing else ever changes."""
        from deltalake import Schema

        known = {field.name for field in found.delta.schema().fields}
        new = [field for field in Schema.from_arrow(self.spec.schema).fields if field.name not in known]
        if new:
            found.delta.alter.add_columns(new)
        found = self.open()
        found.delta.alter.set_table_properties({VERSION: str(self.spec.version)}, raise_if_not_exists=False)
        found = self.open()
        self._settle(found.version, since=found.version - 2)
        return found

    def open(self) -> Snapshot:
        """The table as it is now."""
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError

        try:
            return Snapshot(self, DeltaTable(self.uri, storage_options=self.lake.options or None))
        except TableNotFoundError:
            raise NotFound(
                f"the lake {self.lake.uri} has no table {self.spec.name}", hint="make it with: tampu pipeline run"
            ) from None

    def _mend(self) -> None:
        """An entry that a loss of power left half written was never told to the queue: out of the way with it."""
        if self.place.local is None:
            return
        log = self.place.local / "_delta_log"
        entries = sorted(log.glob("[0-9]*.json"))
        if not entries:
            return
        try:
            for line in entries[-1].read_bytes().splitlines():
                json.loads(line)
            whole = entries[-1].stat().st_size > 0
        except ValueError:
            whole = False
        if not whole:
            entries[-1].rename(entries[-1].with_suffix(".torn"))
            files.fsync_path(log)

    def _settle(self, version: int, since: int | None = None) -> None:
        """What the log says up to a version is on the disk when this returns."""
        if self.place.local is None:
            return
        log = self.place.local / "_delta_log"
        for number in range(version if since is None else max(since, 0), version + 1):
            for entry in (f"{number:020}.json", f"{number:020}.checkpoint.parquet"):
                if (log / entry).exists():
                    files.fsync_path(log / entry)
        if (log / "_last_checkpoint").exists():
            files.fsync_path(log / "_last_checkpoint")
        files.fsync_path(log)
        files.fsync_path(log.parent)


class Snapshot:
    """One version of a table: what it holds, and what may follow on it."""

    def __init__(self, table: LakeTable, delta: DeltaTable) -> None:
        self.table = table
        self.delta = delta
        self.version = int(delta.version())
        self._files: list[DataFile] | None = None

    # -- looking

    def property(self, name: str) -> str | None:
        return self.delta.metadata().configuration.get(name)

    def schema_version(self) -> int:
        return int(self.property(VERSION) or 0)

    def check_version(self) -> None:
        if self.schema_version() > self.table.spec.version:
            raise SchemaMismatch(
                f"{self.table.spec.name} in {self.table.lake.uri} was written by a newer tampu", hint="upgrade tampu"
            )

    def position(self, reader: str, partitions: Iterable[str]) -> Position:
        """How far into the journal the table has come; 0 where it has not begun."""
        return {p: int(self.delta.transaction_version(f"{reader}/{p}") or 0) for p in partitions}

    def run(self, reader: str) -> int:
        """The number of the last run that wrote to it."""
        return int(self.delta.transaction_version(reader) or 0)

    def files(self, days: Iterable[date] | None = None, after: Position | None = None) -> list[DataFile]:
        """The data files; with ``after`` without those whose rows are all at or before that position."""
        if self._files is None:
            self._files = [_data_file(row) for row in pa.table(self.delta.get_add_actions()).to_pylist()]
        found = self._files
        if days is not None:
            wanted = {day.isoformat() for day in days}
            found = [file for file in found if file.day in wanted]
        if after is not None:
            found = [file for file in found if _beyond(file, after)]
        return found

    def rows(self, days: Iterable[date] | None = None, after: Position | None = None) -> int:
        """At least as many rows as there are of these days, or past the position."""
        return sum(file.rows for file in self.files(days, after))

    def size(self) -> int:
        return sum(file.size for file in self.files())

    def arrow(self) -> Any:
        """The table as an Arrow dataset, for DuckDB and friends."""
        from tampu.lake.datasets import dataset

        return dataset(self.delta)

    def peek(self, columns: list[str], chosen: Iterable[DataFile]) -> pa.Table:
        """A few columns of some files, without Spark."""
        schema = pa.schema([self.table.spec.schema.field(name) for name in columns])
        return pa.Table.from_batches(
            files.read_batches(self.table.place, schema, [file.path for file in chosen]), schema
        )

    def read(
        self,
        spark: SparkSession,
        *,
        days: Iterable[date] | None = None,
        after: Position | None = None,
        only: Iterable[DataFile] | None = None,
    ) -> DataFrame:
        """The rows as a DataFrame, from the files that count and no others."""
        if only is None and self.table.lake.format == "delta":
            return self._native(spark, days)
        chosen = list(only) if only is not None else self.files(days, after)
        return read(spark, self.table, chosen)

    def _native(self, spark: SparkSession, days: Iterable[date] | None) -> DataFrame:
        """Through the cluster's own Delta Lake; it leaves files out by itself."""
        lake = self.table.lake
        root = self.table.uri if lake.scheme is None else f"{lake.scheme}://{self.table.uri.partition('://')[2]}"
        try:
            df = spark.read.format("delta").option("versionAsOf", self.version).load(root)
        except Exception as error:  # py4j's or Spark's, by how the session is connected
            if "DATA_SOURCE_NOT_FOUND" not in str(error):
                raise
            raise Unavailable(
                "this Spark has no Delta Lake",
                field="format",
                hint="leave --format out: the tables are the same; or add the delta-spark jars to the cluster",
            ) from None
        df = df.select(*[f"`{name}`" for name in self.table.spec.schema.names])
        return df if days is None else df.where(df["day"].isin(list(days)))

    def places(self, spark: SparkSession, columns: list[str]) -> DataFrame:
        """Some columns of all rows, with the ``file`` each is in."""
        schema = pa.schema([self.table.spec.schema.field(name) for name in columns])
        place = self.table.place

        def look(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for path in batch.column(0).to_pylist():
                    for rows in files.read_batches(place, schema, [path]):
                        yield rows.append_column("file", pa.repeat(pa.scalar(path, pa.string()), rows.num_rows))

        return _named(spark, [file.path for file in self.files()]).mapInArrow(look, f"{ddl(schema)}, file string")

    # -- writing

    def append(self, df: DataFrame, mark: Mark, *, via: Via | None = None) -> list[DataFile]:
        new = write(df, self.table, f"r{mark.run}", via=via)
        self.commit(new, mark)
        return new

    def replace_days(self, df: DataFrame, days: Sequence[date], mark: Mark) -> list[DataFile]:
        """The rows of these days become those of ``df``, which must have no others."""
        new = write(df, self.table, f"r{mark.run}")
        wanted = {day.isoformat() for day in days}
        strange = {file.day for file in new} - wanted
        if strange:
            raise Unavailable(f"{self.table.spec.name} got rows of {strange}", hint="this is a fault of tampu's")
        self.commit(new, mark, drop=lambda known: [file for file in known if file.day in wanted])
        return new

    def overwrite(self, df: DataFrame, mark: Mark) -> list[DataFile]:
        new = write(df, self.table, f"r{mark.run}")
        self.commit(new, mark, drop=lambda known: known)
        return new

    def commit(
        self, new: Sequence[DataFile], mark: Mark | None, *, drop: Drop | None = None, tidy: bool = False
    ) -> int:
        """Make files count, and others not any more; the new version. Rows and position change together.

        Somebody else's commit in between is let by when it did not move the position (a compaction); else this one is
        refused.
        """
        from deltalake import CommitProperties, Transaction
        from deltalake.exceptions import CommitFailedError
        from deltalake.transaction import AddAction, RemoveAction

        now = int(time.time() * 1000)
        parts = self.table._parts
        adds = [
            AddAction(
                path=file.path,
                size=file.size,
                partition_values={} if not parts else {"day": file.day, "tenant": file.tenant},
                modification_time=now,
                data_change=not tidy,
                stats=file.stats,
            )
            for file in new
        ]
        transactions, told = [], {}
        if mark is not None:
            transactions = [Transaction(mark.reader, mark.run)]
            transactions += [Transaction(f"{mark.reader}/{p}", offset) for p, offset in mark.position.items()]
            told = {"tampu.run": str(mark.run), "tampu.position": json.dumps(mark.position), "tampu.note": mark.note}
        properties = CommitProperties(custom_metadata=told, app_transactions=transactions, max_commit_retries=0)
        base: Snapshot = self
        for _ in range(_TRIES):
            gone = drop(base.files()) if drop is not None else []
            removes = [
                RemoveAction(
                    file.path,
                    not tidy,
                    now,
                    size=file.size,
                    partition_values={} if not parts else {"day": file.day, "tenant": file.tenant},
                )
                for file in gone
            ]
            try:
                delta = base.delta
                delta.create_write_transaction(
                    [*adds, *removes], "append", delta.schema(), parts, commit_properties=properties
                )
            except CommitFailedError:
                base = self._unmoved(mark)
                continue
            version = base.version + 1
            self.table._settle(version)
            return version
        raise VersionConflict(f"{self.table.spec.name} is changed all the time", hint="run it again later")

    def _unmoved(self, mark: Mark | None) -> Snapshot:
        """The table as it is now, if no other run has moved it since."""
        fresh = self.table.open()
        if mark is not None:
            mine = (self.run(mark.reader), self.position(mark.reader, mark.position))
            if mine != (fresh.run(mark.reader), fresh.position(mark.reader, mark.position)):
                raise VersionConflict(
                    f"another run of {mark.reader} is at work on {self.table.lake.uri}; nothing was doubled",
                    hint="one pipeline per lake; stop one of them",
                )
        return fresh


def exactly(paths: Iterable[str]) -> Drop:
    """Drop these files, which must all be there still."""
    wanted = set(paths)

    def drop(known: list[DataFile]) -> list[DataFile]:
        gone = [file for file in known if file.path in wanted]
        if len(gone) < len(wanted):
            raise VersionConflict("files were rewritten meanwhile; nothing was changed", hint="run it again")
        return gone

    return drop


def write(df: DataFrame, table: LakeTable, tag: str, *, via: Via | None = None) -> list[DataFile]:
    """Have the executors write the rows; the files count for nothing yet. ``via`` makes rows out of what ``df`` has."""
    act = files.writer(table.place, table.spec.schema, tag, parted=table.parted, via=via)
    if via is None:
        df = df.select(*[f"`{name}`" for name in table.spec.schema.names])
    return [DataFile(*row) for row in df.mapInArrow(act, files.TOLD_DDL).collect()]


def read(spark: SparkSession, table: LakeTable, chosen: Sequence[DataFile]) -> DataFrame:
    schema = ddl(table.spec.schema)
    if not chosen:
        return spark.createDataFrame([], schema)
    ours = [file.path for file in chosen if "=" not in file.path]
    df: DataFrame | None = None
    if ours:
        df = _spark_read(spark, table, schema, ours)
    for (day, tenant), group in _foreign(chosen).items():
        from pyspark.sql import functions as F

        part = _spark_read(spark, table, schema, group)
        part = part.withColumn("day", F.lit(day).cast("date")).withColumn("tenant", F.lit(tenant))
        df = part if df is None else df.unionByName(part)
    assert df is not None
    return df


def _foreign(chosen: Iterable[DataFile]) -> dict[tuple[str | None, str | None], list[str]]:
    """Files that another program made of ours (OPTIMIZE): they lack the partition's columns."""
    groups: dict[tuple[str | None, str | None], list[str]] = {}
    for file in chosen:
        if "=" in file.path:
            groups.setdefault((file.day, file.tenant), []).append(file.path)
    return groups


def _spark_read(spark: SparkSession, table: LakeTable, schema: str, paths: list[str]) -> DataFrame:
    local = table.place.local
    if local is not None or table.lake.scheme is not None:
        root = f"file://{local}" if local is not None else f"{table.lake.scheme}://{table.uri.partition('://')[2]}"
        # Spark takes a path with such signs for a pattern; told not to, it reads each file several times.
        if not _PATTERN & set(root):
            return spark.read.schema(schema).parquet(*[f"{root}/{path}" for path in paths])
    place, columns = table.place, table.spec.schema

    def fetch(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from files.read_batches(place, columns, batch.column(0).to_pylist())

    return _named(spark, paths).mapInArrow(fetch, schema)


def _named(spark: SparkSession, paths: Sequence[str]) -> DataFrame:
    named = spark.createDataFrame([(path,) for path in paths], "path string")
    return named.repartition(min(len(paths), _TASKS))


def _data_file(row: Mapping[str, Any]) -> DataFile:
    parts = row.get("partition") or row.get("partition_values") or {}
    day = parts.get("day")
    told = {
        "numRecords": row.get("num_records"),
        "minValues": row.get("min") or {},
        "maxValues": row.get("max") or {},
        "nullCount": row.get("null_count") or {},
    }
    return DataFile(
        row["path"],
        row["size_bytes"],
        row["num_records"] or 0,
        day.isoformat() if isinstance(day, date) else day,
        parts.get("tenant"),
        json.dumps(told, default=str),
    )


def _beyond(file: DataFile, after: Position) -> bool:
    """May the file hold rows past the position?"""
    told = json.loads(file.stats)
    least, most = told["minValues"], told["maxValues"]
    top = most.get("offset", most.get("ended_offset"))
    if top is None:
        return True
    name = "partition" if "partition" in least else "ended_partition"
    if least.get(name) == most.get(name) and least.get(name) is not None:
        return bool(top > after.get(least[name], 0))
    return bool(top > min(after.values(), default=0))
