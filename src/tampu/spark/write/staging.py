"""Where tasks stage their rows until the job commits: a shared folder, or the store itself.

A folder belongs to one write, and a name in it to one attempt of one task. Only the winning attempts are read. Rows
that a dead write staged are never read, so they need not survive a power loss; a later write removes them, a day after
the last change.
"""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import msgspec
import pyarrow as pa

from tampu.engines.port import Call, DeleteDocument, PutDocument
from tampu.model.decoders import from_json
from tampu.model.errors import StorageError
from tampu.model.times import SECOND
from tampu.spark.write.rows import STAGED
from tampu.stores.port import ArrowStore

MOST_ROWS = 10_000
MOST_BYTES = 16 << 20
"""Maximum size of the bodies in one batch, and in one commit; a single body may be larger."""
_STALE_SECONDS = 86_400
STAGED_ROWS = "spark-stage"
STAGED_NAMES = "spark-staged"
_AT_ONCE = 100


def folder_name(owner: str, unique: str) -> str:
    """A valid folder name for any job id; the folders of one owner share a prefix."""
    return f"{_digest(owner)}-{unique}"


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


class Stage(Protocol):
    """Takes the rows of one attempt. Nothing is created before the first row."""

    rows: int

    @property
    def where(self) -> str:
        """The location that `Area.read` takes."""
        ...

    def add(self, batch: pa.RecordBatch) -> None: ...

    def close(self) -> None: ...

    def discard(self) -> None: ...


class Area(Protocol):
    def stage(self, folder: str, name: str) -> Stage: ...

    def read(self, where: str) -> Iterator[pa.RecordBatch]: ...

    def remove(self, folder: str) -> None:
        """Remove what a write staged. A task that still runs may leave something behind for `clean`."""
        ...

    def clean(self) -> None:
        """Remove what dead writes staged: folders without a change for a day."""
        ...

    def clean_owner(self, owner: str) -> None:
        """Remove all folders of an owner that has no running write."""
        ...


def area(store: ArrowStore, tenant: str, folder: str | None) -> Area:
    """The folder that the user gave or the store suggests; else the store itself."""
    place = folder or store.staging()
    return InStore(store, tenant) if place is None else InFolder(Path(place))


def pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The batch in parts that fit into one commit."""
    start = size = 0
    if len(batch) <= MOST_ROWS and batch.nbytes <= MOST_BYTES:
        yield batch
        return
    for place, length in enumerate(pa.compute.binary_length(batch.column("body")).to_pylist()):
        if place - start >= MOST_ROWS or (size and size + length > MOST_BYTES):
            yield batch.slice(start, place - start)
            start, size = place, 0
        size += length
    yield batch.slice(start)


def _parts(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    if len(batch):
        yield from pieces(batch) if batch.schema.equals(STAGED) else (batch,)


def _unreadable(where: str, why: object) -> StorageError:
    return StorageError(
        f"cannot read what a task staged in {where}: {why}",
        hint="run the write again with the same jobId; driver and executors must share the staging folder",
    )


# -- files of Arrow batches


class InFolder:
    """A folder that the driver and all executors can write to."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def stage(self, folder: str, name: str) -> Stage:
        return _File(self._root / folder, f"{name}.arrow")

    def read(self, where: str) -> Iterator[pa.RecordBatch]:
        """The batches of a staged file, memory-mapped."""
        try:
            with pa.memory_map(where) as source, pa.ipc.open_stream(source) as reader:
                yield from reader
        except (OSError, pa.ArrowInvalid) as error:
            raise _unreadable(where, error) from error

    def remove(self, folder: str) -> None:
        shutil.rmtree(self._root / folder, ignore_errors=True)
        self._remove_root()

    def clean(self) -> None:
        limit = time.time() - _STALE_SECONDS
        for folder in list(self._root.iterdir()) if self._root.is_dir() else []:
            with contextlib.suppress(OSError):
                if max(entry.stat().st_mtime for entry in (folder, *folder.iterdir())) < limit:
                    shutil.rmtree(folder, ignore_errors=True)

    def clean_owner(self, owner: str) -> None:
        for folder in self._root.glob(f"{_digest(owner)}-*"):
            shutil.rmtree(folder, ignore_errors=True)
        self._remove_root()

    def _remove_root(self) -> None:
        with contextlib.suppress(OSError):
            self._root.rmdir()  # fails if it has other folders


class _File:
    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._path = folder / name
        self.rows = 0
        self._sink: pa.ipc.RecordBatchStreamWriter | None = None

    @property
    def where(self) -> str:
        return str(self._path)

    def add(self, batch: pa.RecordBatch) -> None:
        for part in _parts(batch):
            if self._sink is None:
                self._folder.mkdir(parents=True, exist_ok=True)
                self._sink = pa.ipc.new_stream(pa.OSFile(str(self._path), "wb"), batch.schema)
            self._sink.write_batch(part)
        self.rows += len(batch)

    def close(self) -> None:
        if self._sink is not None:
            self._sink.close()

    def discard(self) -> None:
        self.close()
        self._path.unlink(missing_ok=True)


# -- documents of the store


class _Kept(msgspec.Struct, frozen=True):
    """How much an attempt has staged, and when last."""

    parts: int
    at_us: int


_to_kept = from_json(_Kept).decode


class InStore:
    """Documents of the store: a small one per attempt, and one per part of its rows."""

    def __init__(self, store: ArrowStore, tenant: str) -> None:
        self._store = store
        self._tenant = tenant

    def stage(self, folder: str, name: str) -> Stage:
        return _Documents(self._store, self._tenant, f"{folder}/{name}")

    def read(self, where: str) -> Iterator[pa.RecordBatch]:
        name, _, count = where.rpartition("/")
        for number in range(int(count)):
            found = self._store.document(STAGED_ROWS, self._tenant, f"{name}/{number}")
            if found is None:
                raise _unreadable(where, "it was removed")
            with pa.ipc.open_stream(found.value) as reader:
                yield from reader

    def remove(self, folder: str) -> None:
        self._delete(f"{folder}/")

    def clean(self) -> None:
        self._delete("", self._store.now() - _STALE_SECONDS * SECOND)

    def clean_owner(self, owner: str) -> None:
        self._delete(f"{_digest(owner)}-")

    def _delete(self, prefix: str, before_us: int | None = None) -> None:
        for document in self._store.documents(STAGED_NAMES, self._tenant, prefix):
            kept = _to_kept(document.value)
            if before_us is None or kept.at_us < before_us:
                delete(self._store, self._tenant, document.name, kept.parts)


def delete(store: ArrowStore, tenant: str, name: str, parts: int) -> None:
    """Deletes the parts first: as long as the name exists, a cleanup finds them."""
    gone: list[Call] = [DeleteDocument(STAGED_ROWS, tenant, f"{name}/{number}") for number in range(parts)]
    for start in range(0, len(gone), _AT_ONCE):
        store.run(gone[start : start + _AT_ONCE])
    store.run([DeleteDocument(STAGED_NAMES, tenant, name)])


class _Documents:
    def __init__(self, store: ArrowStore, tenant: str, name: str) -> None:
        self._store = store
        self._tenant = tenant
        self._name = name
        self._parts = 0
        self.rows = 0

    @property
    def where(self) -> str:
        return f"{self._name}/{self._parts}"

    def add(self, batch: pa.RecordBatch) -> None:
        for part in _parts(batch):
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, part.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as stream:
                stream.write_batch(part)
            kept = msgspec.json.encode(_Kept(self._parts + 1, self._store.now()))
            # The name not later than the rows, so that a cleanup finds them.
            name, rows = self._name, f"{self._name}/{self._parts}"
            self._store.aside(
                [
                    PutDocument(STAGED_NAMES, self._tenant, name, kept),
                    PutDocument(STAGED_ROWS, self._tenant, rows, sink.getvalue().to_pybytes()),
                ]
            )
            self._parts += 1
        self.rows += len(batch)

    def close(self) -> None:
        """Nothing to do: every part is stored already."""

    def discard(self) -> None:
        if self._parts:
            with contextlib.suppress(StorageError):  # if the store itself failed, `clean` removes it later
                delete(self._store, self._tenant, self._name, self._parts)
