"""Data files of the lake: where they are, how they are reached, and when they are on the disk for good.

On a local disk a file and its folder are synced (fsync) before anybody hears of it. How rows become a file, and come
back from one, is in `parquet`.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from tampu.lake.storage.urls import local_path, resolved


class DataFile(msgspec.Struct, frozen=True):
    path: str
    """Inside the table's folder."""
    size: int
    rows: int
    day: str | None
    tenant: str | None
    stats: str

    def bare(self) -> DataFile:
        """Without its statistics: enough to read it."""
        return DataFile(self.path, self.size, self.rows, self.day, self.tenant, "")

    @property
    def newest(self) -> datetime | None:
        """The greatest `at`, where the log says it."""
        found = json.loads(self.stats)["maxValues"].get("at")
        return None if found is None else datetime.fromisoformat(found)

    def nulls(self, column: str) -> int | None:
        """How many rows lack a value in a column, where the log says it."""
        found: int | None = json.loads(self.stats)["nullCount"].get(column)
        return found


class Place(msgspec.Struct, frozen=True):
    """Where a table is, for executors: its uri and how to reach it."""

    uri: str
    options: dict[str, str]
    """As they were given: a secret is the name of a variable here, and its value is looked up where it is used."""

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

    def exists(self, path: str) -> bool:
        root = self.local
        return (root / path).exists() if root is not None else self._storage().get_file_info(path).is_file

    def opening(self, path: str) -> Any:
        root = self.local
        return str(root / path) if root is not None else self._storage().open_input_file(path)

    def _storage(self) -> Any:
        from deltalake.fs import DeltaStorageHandler
        from pyarrow.fs import PyFileSystem

        return PyFileSystem(DeltaStorageHandler(self.uri, resolved(self.options) or None))


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
