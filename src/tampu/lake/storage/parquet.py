"""Rows to data files and back: one Parquet file per table, day and tenant, however the rows come.

`day` and `tenant` are inside the files as well, so that any Parquet reader sees them. A file counts for nothing before
the log of its table names it.
"""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import UTC, date, datetime
from typing import Any, TypeAlias

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tampu.lake.storage.files import DataFile, Place
from tampu.lake.tables.schema import PARTITION_BY

_ROWS = 131_072
"""Rows gathered for one row group."""
_BYTES = 64 << 20
_HELD = 192 << 20
"""Bytes that a task holds back for all its files together."""
_READ = 32 << 20
"""Bytes of a file that are read at once."""
_MOST_OPEN = 64
"""Files a task has open at once; with more tenants than that it closes the one it wrote to longest ago."""
_LONGEST_TEXT = 64
_NO_DICTIONARY = {"id", "offset", "at", "payload", "result", "ended_offset", "created_at", "ended_at"}
_STATS_TYPES = (pa.int64(), pa.int32(), pa.timestamp("us", tz="UTC"))
_STATS_TEXTS = {"partition", "queue", "ended_partition"}

Rows: TypeAlias = pa.RecordBatch | pa.Table


class Target(msgspec.Struct, frozen=True):
    """A table as an executor has to know it to write files for it."""

    name: str
    place: Place
    schema: pa.Schema
    parted: bool


def write_batches(target: Target, tag: str, batches: Iterable[Rows]) -> Iterator[DataFile]:
    """Write batches to one file per day and tenant. Yields each file once it is written and closed."""
    with contextlib.ExitStack() as undo:
        open_files: dict[tuple[date | None, str | None], _OpenFile] = {}
        for some in batches:
            for key, part in split(fitted(some, target.schema), parted=target.parted):
                file = open_files.pop(key, None)
                if file is None:
                    if len(open_files) >= _MOST_OPEN:
                        yield open_files.pop(next(iter(open_files))).close()
                    file = _OpenFile(target, tag, *key)
                    undo.callback(file.abandon)
                open_files[key] = file
                file.add(part)
                if sum(one.held for one in open_files.values()) > _HELD:
                    max(open_files.values(), key=lambda one: one.held).flush()
        for file in open_files.values():
            yield file.close()


def fitted(rows: pa.RecordBatch | pa.Table, schema: pa.Schema) -> pa.Table:
    """The rows in the table's columns and types."""
    table = pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows
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
    order = [(key, "ascending") for key in keys]
    table = table.take(pc.sort_indices(table, sort_keys=order))  # stable: each part keeps its order
    start = 0
    for group in groups.sort_by(order).to_pylist():
        yield (group[keys[0]], group[keys[1]]), table.slice(start, group["count_all"])
        start += group["count_all"]


class _OpenFile:
    """One file being written."""

    def __init__(self, target: Target, tag: str, day: date | None, tenant: str | None) -> None:
        self.day, self.tenant = day, tenant
        self._schema = schema = target.schema
        folder = "all" if day is None else day.isoformat()
        self.path = f"{folder}/{tag}-{uuid.uuid4().hex}.parquet"
        self._held: list[pa.Table] = []
        self._rows = self.held = self._total = 0
        self._metadata: list[Any] = []
        self._stack = contextlib.ExitStack()
        self._file = self._stack.enter_context(target.place.creating(self.path))
        self._writer = pq.ParquetWriter(
            self._file,
            schema,
            compression="zstd",
            compression_level=1,
            use_dictionary=[f.name for f in schema if f.name not in _NO_DICTIONARY and not pa.types.is_map(f.type)],
            metadata_collector=self._metadata,
        )

    def add(self, rows: pa.Table) -> None:
        self._held.append(rows)
        self._rows += rows.num_rows
        self.held += rows.nbytes
        if self._rows >= _ROWS or self.held >= _BYTES:
            self.flush()

    def flush(self) -> None:
        if self._held:
            self._writer.write_table(pa.concat_tables(self._held), row_group_size=_ROWS)
            self._total += self._rows
            self._held, self._rows, self.held = [], 0, 0

    def close(self) -> DataFile:
        self.flush()
        self._writer.close()
        size = self._file.tell()
        self._stack.close()
        return DataFile(
            self.path,
            size,
            self._total,
            None if self.day is None else self.day.isoformat(),
            self.tenant,
            stats(self._metadata[0], self._schema),
        )

    def abandon(self) -> None:
        """After an error the half file stays behind, in no table; vacuum removes it."""
        with contextlib.suppress(Exception):
            self._stack.close()


def stats(metadata: pq.FileMetaData, schema: pa.Schema) -> str:
    """numRecords, and the least and greatest of numbers, times and short names, as the log of a table has them."""
    wanted = {f.name for f in schema if f.type in _STATS_TYPES or f.name in _STATS_TEXTS} - set(PARTITION_BY)
    found: dict[str, list[pq.Statistics]] = {}
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        for column in map(group.column, range(group.num_columns)):
            if column.path_in_schema in wanted and column.statistics is not None:
                found.setdefault(column.path_in_schema, []).append(column.statistics)
    bounds = {name: known for name, some in found.items() if (known := [one for one in some if one.has_min_max])}
    return json.dumps(
        {
            "numRecords": metadata.num_rows,
            "minValues": _plain({name: min(one.min for one in known) for name, known in bounds.items()}),
            "maxValues": _plain({name: max(one.max for one in known) for name, known in bounds.items()}),
            "nullCount": {name: sum(one.null_count or 0 for one in some) for name, some in found.items()},
        }
    )


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    plain = {}
    for name, value in values.items():
        if isinstance(value, datetime):
            plain[name] = value.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        elif not isinstance(value, str) or len(value) <= _LONGEST_TEXT:
            plain[name] = value
    return plain


def read_batches(place: Place, schema: pa.Schema, chosen: Iterable[DataFile]) -> Iterator[pa.RecordBatch]:
    """The rows of data files; columns that a file is too old to have are null."""
    for file in chosen:
        # Files that another program made of ours (OPTIMIZE) lack the columns of their partition; the log has them.
        known = {"day": file.day and date.fromisoformat(file.day), "tenant": file.tenant} if "=" in file.path else {}
        with pq.ParquetFile(place.opening(file.path)) as source:
            names = [name for name in schema.names if name in source.schema_arrow.names]
            for group in range(source.num_row_groups):
                size = _rows_at_once(source.metadata.row_group(group), names)
                for batch in source.iter_batches(size, row_groups=[group], columns=names):
                    yield widened(batch, schema, known)


def _rows_at_once(group: pq.RowGroupMetaData, names: Collection[str]) -> int:
    """As many as make up `_READ` bytes of these columns."""
    columns = (group.column(at) for at in range(group.num_columns))
    size: int = sum(one.total_uncompressed_size for one in columns if one.path_in_schema.partition(".")[0] in names)
    return max(1, min(_ROWS, _READ * int(group.num_rows) // max(size, 1)))


def widened(batch: pa.RecordBatch, schema: pa.Schema, known: Mapping[str, Any]) -> pa.RecordBatch:
    columns = [
        batch.column(f.name).cast(f.type)
        if f.name in batch.schema.names
        else pa.repeat(pa.scalar(known.get(f.name), f.type), batch.num_rows)
        for f in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
