"""One version of a table: what it holds, and the commit that makes the next one.

Executors write data files; the driver makes them count with one entry in the table's log. That entry also carries how
far into the journal the table has come, so rows and position are one commit. An entry is only made on the version that
was read: of two runs at once the second is refused.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from tampu.lake.storage import parquet
from tampu.lake.storage.files import DataFile
from tampu.model.errors import SchemaMismatch, Unavailable, VersionConflict
from tampu.model.journal import Position

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from tampu.lake.storage.lake import LakeTable

VERSION = "tampu.version"
_TRIES = 5

Drop = Callable[[list[DataFile]], list[DataFile]]
"""Of the files that count, those that shall not any more."""


class Rewritten(VersionConflict):
    """Files that a commit would have dropped are gone: somebody has joined them."""


class Mark(msgspec.Struct, frozen=True):
    """What a commit says of itself: whose it is, which run, and how far the table has come with it."""

    reader: str
    run: int
    position: Position


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

    def arrow_schema(self) -> pa.Schema:
        return pa.schema(self.delta.schema().to_arrow())

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

    def files(self, *, after: Position | None = None) -> list[DataFile]:
        """The data files; with ``after`` without those whose rows are all at or before that position."""
        if self._files is None:
            self._files = [_data_file(row) for row in pa.table(self.delta.get_add_actions()).to_pylist()]
        return self._files if after is None else [file for file in self._files if _beyond(file, after)]

    def rows(self) -> int:
        return sum(file.rows for file in self.files())

    def size(self) -> int:
        return sum(file.size for file in self.files())

    def arrow(self) -> Any:
        """The table as an Arrow dataset, for DuckDB and friends."""
        from tampu.lake.storage.datasets import dataset

        return dataset(self.delta)

    def peeked(self, columns: Sequence[str], chosen: Iterable[DataFile]) -> Iterator[pa.RecordBatch]:
        """A few columns of some files, without Spark."""
        schema = pa.schema([self.table.spec.schema.field(name) for name in columns])
        return parquet.read_batches(self.table.place, schema, chosen)

    def newer(self) -> Snapshot:
        """The table as it is now; this one is not to be used any more."""
        self.delta.update_incremental()
        return Snapshot(self.table, self.delta)

    # -- the next version

    def add_columns(self, schema: pa.Schema) -> Snapshot:
        """The table with the columns of this schema that it does not have yet."""
        from deltalake import Schema

        known = self.arrow_schema().names
        new = [field for field in Schema.from_arrow(schema).fields if field.name not in known]
        if not new:
            return self
        self.delta.alter.add_columns(new)
        return self._altered()

    def set_properties(self, properties: Mapping[str, str]) -> Snapshot:
        self.delta.alter.set_table_properties(dict(properties), raise_if_not_exists=False)
        return self._altered()

    def _altered(self) -> Snapshot:
        self.table.settle(self.version + 1)
        return self.table.open()

    def replace_days(self, new: Sequence[DataFile], days: Iterable[date], mark: Mark) -> None:
        """The rows of these days become those of the new files, which must have no others."""
        wanted = {day.isoformat() for day in days}
        strange = {file.day for file in new} - wanted
        if strange:
            raise Unavailable(f"{self.table.spec.name} got rows of {strange}", hint="this is a fault of tampu's")
        self.commit(new, mark, drop=lambda known: [file for file in known if file.day in wanted])

    def overwrite(self, new: Sequence[DataFile], mark: Mark) -> None:
        self.commit(new, mark, drop=lambda known: known)

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
        parts = self.table.parts

        def values(file: DataFile) -> dict[str, str | None]:
            return {"day": file.day, "tenant": file.tenant} if parts else {}

        adds = [AddAction(file.path, file.size, values(file), now, not tidy, file.stats) for file in new]
        transactions, metadata = [], {}
        if mark is not None:
            transactions = [Transaction(mark.reader, mark.run)]
            transactions += [Transaction(f"{mark.reader}/{p}", offset) for p, offset in mark.position.items()]
            metadata = {"tampu.run": str(mark.run), "tampu.position": json.dumps(mark.position)}
        properties = CommitProperties(custom_metadata=metadata, app_transactions=transactions, max_commit_retries=0)
        base: Snapshot = self
        for _ in range(_TRIES):
            gone = drop(base.files()) if drop is not None else []
            removes = [
                RemoveAction(file.path, not tidy, now, size=file.size, partition_values=values(file)) for file in gone
            ]
            try:
                delta = base.delta
                delta.create_write_transaction(
                    [*adds, *removes], "append", delta.schema(), parts, commit_properties=properties
                )
            except CommitFailedError:
                base = self.unmoved(mark)
                continue
            version = base.version + 1
            self.table.settle(version)
            return version
        raise VersionConflict(f"{self.table.spec.name} is changed all the time", hint="run it again later")

    def unmoved(self, mark: Mark | None) -> Snapshot:
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
            raise Rewritten("files were rewritten meanwhile; nothing was changed", hint="run it again")
        return gone

    return drop


def _data_file(row: Mapping[str, Any]) -> DataFile:
    parts = row.get("partition") or row.get("partition_values") or {}
    day = parts.get("day")
    stats = {
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
        json.dumps(stats, default=str),
    )


def _beyond(file: DataFile, after: Position) -> bool:
    """May the file hold rows past the position?"""
    stats = json.loads(file.stats)
    least, most = stats["minValues"], stats["maxValues"]
    top = most.get("offset", most.get("ended_offset"))
    if top is None:
        return True
    name = "partition" if "partition" in least else "ended_partition"
    if least.get(name) == most.get(name) and least.get(name) is not None:
        return bool(top > after.get(least[name], 0))
    return bool(top > min(after.values(), default=0))
