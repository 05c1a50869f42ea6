"""Data files of the lake: written by executors, told to the driver, never visible before the table's log names them.

A file holds rows of one day and tenant, with these two columns inside as well, so that any Parquet reader sees them.
On a local disk a file and its folder are on the disk (fsync) before the driver hears of it.
"""

from __future__ import annotations

import contextlib
import json
import os
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from tampu.lake.tables import PARTITION_BY

_ROWS = 131_072
"""Rows gathered for one row group."""
_BYTES = 64 << 20
_MOST_OPEN = 64
"""Files a task has open at once; with more tenants than that it closes the one it wrote to longest ago."""
_LONGEST_TEXT = 64
_NO_DICTIONARY = {"id", "offset", "at", "payload", "result", "ended_offset", "created_at", "ended_at"}
_STATS_TYPES = (pa.int64(), pa.int32(), pa.timestamp("us", tz="UTC"))
_STATS_TEXTS = {"partition", "queue", "ended_partition"}

TOLD = pa.schema(
    [
        ("path", pa.string()),
        ("size", pa.int64()),
        ("rows", pa.int64()),
        ("day", pa.string()),
        ("tenant", pa.string()),
        ("stats", pa.string()),
    ]
)
TOLD_DDL = "path string, size bigint, rows bigint, day string, tenant string, stats string"

Via = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class DataFile(msgspec.Struct, frozen=True):
    path: str
    """Inside the table's folder."""
    size: int
    rows: int
    day: str | None
    tenant: str | None
    stats: str

    @property
    def newest(self) -> datetime | None:
        """The greatest `at`, where the log says it."""
        found = json.loads(self.stats)["maxValues"].get("at")
        return None if found is None else datetime.fromisoformat(found)


class Place(msgspec.Struct, frozen=True):
    """Where a table is, for executors: its uri and how to reach it."""

    uri: str
    options: dict[str, str]

    @property
    def local(self) -> Path | None:
        return local_path(self.uri)

    @contextlib.contextmanager
    def creating(self, path: str) -> Iterator[Any]:
        """A new file, on the disk for good when this ends."""
        root = self.local
        if root is None:
            with self._storage().open_output_stream(path) as sink:
                yield sink
            return
        target = root / path
        make_folders(target.parent)
        with target.open("wb") as sink:
            yield sink
            sink.flush()
            fsync(sink.fileno())
        fsync_path(target.parent)

    def opening(self, path: str) -> Any:
        root = self.local
        return str(root / path) if root is not None else self._storage().open_input_file(path)

    def _storage(self) -> Any:
        from deltalake.fs import DeltaStorageHandler
        from pyarrow.fs import PyFileSystem

        return PyFileSystem(DeltaStorageHandler(self.uri, self.options or None))


def local_path(uri: str) -> Path | None:
    """The folder of a local uri; None for one that is elsewhere."""
    if uri.startswith("file://"):
        return Path(uri.removeprefix("file://"))
    return None if "://" in uri else Path(uri)


def fsync(handle: int) -> None:
    """The one place that syncs, so that a test can watch it."""
    os.fsync(handle)


def fsync_path(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        fsync(handle)
    finally:
        os.close(handle)


def make_folders(folder: Path) -> None:
    """Make a folder and those above it; each new name is on the disk then."""
    missing = []
    while not folder.exists():
        missing.append(folder)
        folder = folder.parent
    for one in reversed(missing):
        one.mkdir(exist_ok=True)
        fsync_path(one.parent)


def writer(place: Place, schema: pa.Schema, tag: str, *, parted: bool, via: Via | None = None) -> Via:
    """The function that Spark runs over each partition of a DataFrame: rows in, what was written out."""

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if via is not None:
            batches = via(batches)
        for found in write_batches(place, schema, tag, batches, parted=parted):
            yield told([found])

    return write


def told(files: Iterable[DataFile]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([msgspec.to_builtins(file) for file in files], schema=TOLD)


def write_batches(
    place: Place, schema: pa.Schema, tag: str, batches: Iterable[pa.RecordBatch], *, parted: bool
) -> Iterator[DataFile]:
    with contextlib.ExitStack() as undo:
        sheets: dict[tuple[date | None, str | None], _Sheet] = {}
        for batch in batches:
            for key, rows in split(fitted(batch, schema), parted=parted):
                sheet = sheets.pop(key, None)
                if sheet is None:
                    if len(sheets) >= _MOST_OPEN:
                        yield sheets.pop(next(iter(sheets))).close()
                    sheet = _Sheet(place, schema, tag, *key)
                    undo.callback(sheet.abandon)
                sheets[key] = sheet
                sheet.add(rows)
        for sheet in sheets.values():
            yield sheet.close()


def fitted(batch: pa.RecordBatch, schema: pa.Schema) -> pa.Table:
    """The batch in the table's columns and types."""
    table = pa.Table.from_batches([batch])
    if table.schema.names != schema.names:
        table = table.select(schema.names)
    return table if table.schema == schema else table.cast(schema)


def split(table: pa.Table, *, parted: bool) -> Iterator[tuple[tuple[date | None, str | None], pa.Table]]:
    """By day and tenant; each part in the order the rows came in."""
    if table.num_rows == 0:
        return
    if not parted:
        yield (None, None), table
        return
    keys = list(PARTITION_BY)
    groups = table.select(keys).group_by(keys).aggregate([([], "count_all")])
    if groups.num_rows == 1:
        yield (groups[keys[0]][0].as_py(), groups[keys[1]][0].as_py()), table
        return
    numbered = table.append_column("__row", pa.array(range(table.num_rows), pa.int64()))
    order = [(key, "ascending") for key in (*keys, "__row")]
    table = numbered.sort_by(order).drop_columns(["__row"])
    start = 0
    for group in groups.sort_by([(key, "ascending") for key in keys]).to_pylist():
        yield (group[keys[0]], group[keys[1]]), table.slice(start, group["count_all"])
        start += group["count_all"]


class _Sheet:
    """One file being written."""

    def __init__(self, place: Place, schema: pa.Schema, tag: str, day: date | None, tenant: str | None) -> None:
        self.day, self.tenant = day, tenant
        self._schema = schema
        folder = "all" if day is None else day.isoformat()
        self.path = f"{folder}/{tag}-{uuid.uuid4().hex}.parquet"
        self._held: list[pa.Table] = []
        self._rows = self._bytes = self._total = 0
        self._metadata: list[Any] = []
        self._stack = contextlib.ExitStack()
        self._place = place
        self._sink = self._stack.enter_context(_Counting(place.creating(self.path)))
        self._writer = pq.ParquetWriter(
            self._sink.file,
            schema,
            compression="zstd",
            compression_level=1,
            use_dictionary=[f.name for f in schema if f.name not in _NO_DICTIONARY and not pa.types.is_map(f.type)],
            metadata_collector=self._metadata,
        )

    def add(self, rows: pa.Table) -> None:
        self._held.append(rows)
        self._rows += rows.num_rows
        self._bytes += rows.nbytes
        if self._rows >= _ROWS or self._bytes >= _BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._held:
            self._writer.write_table(pa.concat_tables(self._held), row_group_size=_ROWS)
            self._total += self._rows
            self._held, self._rows, self._bytes = [], 0, 0

    def close(self) -> DataFile:
        self._flush()
        self._writer.close()
        self._stack.close()
        return DataFile(
            self.path,
            self._sink.size,
            self._total,
            None if self.day is None else self.day.isoformat(),
            self.tenant,
            stats(self._metadata[0], self._schema),
        )

    def abandon(self) -> None:
        """After an error the half file stays behind, in no table; vacuum removes it."""
        with contextlib.suppress(Exception):
            self._stack.close()


class _Counting:
    """Keeps the size that a file had when it was closed."""

    def __init__(self, inner: contextlib.AbstractContextManager[Any]) -> None:
        self._inner = inner
        self.size = 0
        self.file: Any = None

    def __enter__(self) -> _Counting:
        self.file = self._inner.__enter__()
        return self

    def __exit__(self, *exc: Any) -> None:
        if not self.file.closed:
            self.size = self.file.tell()
        self._inner.__exit__(*exc)


def stats(metadata: pq.FileMetaData, schema: pa.Schema) -> str:
    """numRecords, and the least and greatest of numbers, times and short names, as the log of a table has them."""
    least: dict[str, Any] = {}
    most: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    wanted = {f.name for f in schema if f.type in _STATS_TYPES or f.name in _STATS_TEXTS} - set(PARTITION_BY)
    for group in range(metadata.num_row_groups):
        rows = metadata.row_group(group)
        for at in range(rows.num_columns):
            column = rows.column(at)
            name, found = column.path_in_schema, column.statistics
            if name not in wanted or found is None:
                continue
            nulls[name] = nulls.get(name, 0) + (found.null_count or 0)
            if found.has_min_max:
                least[name] = found.min if name not in least else min(least[name], found.min)
                most[name] = found.max if name not in most else max(most[name], found.max)
    told = {
        "numRecords": metadata.num_rows,
        "minValues": _plain(least),
        "maxValues": _plain(most),
        "nullCount": nulls,
    }
    return json.dumps(told)


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    plain = {}
    for name, value in values.items():
        if isinstance(value, datetime):
            plain[name] = value.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        elif not isinstance(value, str) or len(value) <= _LONGEST_TEXT:
            plain[name] = value
    return plain


def read_batches(place: Place, schema: pa.Schema, paths: Iterable[str]) -> Iterator[pa.RecordBatch]:
    """The rows of data files; columns that a file is too old to have are null."""
    for path in paths:
        with pq.ParquetFile(place.opening(path)) as file:
            names = [name for name in schema.names if name in file.schema_arrow.names]
            for batch in file.iter_batches(columns=names):
                yield widened(batch, schema)


def widened(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    columns = [
        batch.column(f.name).cast(f.type) if f.name in batch.schema.names else pa.nulls(batch.num_rows, f.type)
        for f in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
