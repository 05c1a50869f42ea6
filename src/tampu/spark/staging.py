"""Where the tasks of a job leave their rows until the job commits: files of Arrow batches in a folder beside the store.

A folder belongs to one write, a file to one attempt of one task. Only the files that the winning attempts name are
read. Nobody reads the files of a write that has died, so they need not survive a loss of power; they are removed by a
later write, a day after anybody wrote to them.
"""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from tampu.model.errors import StorageError
from tampu.spark.rows import STAGED

MOST_ROWS = 10_000
MOST_BYTES = 16 << 20
"""Of the bodies in one batch, unless a single one has more; also what one commit publishes."""
_STALE_SECONDS = 86_400


def folder_name(owner: str, unique: str) -> str:
    """Any job id makes a folder; those of one owner begin alike."""
    return f"{_digest(owner)}-{unique}"


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


class Stage:
    """Writes the rows of one attempt; the file is made with the first row."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        self.path = folder / name
        self.rows = 0
        self._sink: pa.ipc.RecordBatchStreamWriter | None = None

    def add(self, batch: pa.RecordBatch) -> None:
        if not len(batch):
            return
        if self._sink is None:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._sink = pa.ipc.new_stream(pa.OSFile(str(self.path), "wb"), batch.schema)
        for piece in pieces(batch) if batch.schema.equals(STAGED) else (batch,):
            self._sink.write_batch(piece)
        self.rows += len(batch)

    def close(self) -> None:
        if self._sink is not None:
            self._sink.close()

    def discard(self) -> None:
        self.close()
        self.path.unlink(missing_ok=True)


def pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The batch in parts that one commit can take."""
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


def read(path: str) -> Iterator[pa.RecordBatch]:
    """The batches of a staged file, mapped, not copied."""
    try:
        with pa.memory_map(path) as source, pa.ipc.open_stream(source) as reader:
            yield from reader
    except (OSError, pa.ArrowInvalid) as error:
        raise StorageError(
            f"what a task staged in {path} can not be read: {error}",
            hint="run the write again with the same jobId; driver and executors must see the same folder",
        ) from error


def remove(folder: Path) -> None:
    """Take a write's folder away; a task that still runs may leave a file behind, for `clean`."""
    shutil.rmtree(folder, ignore_errors=True)
    with contextlib.suppress(OSError):
        folder.parent.rmdir()  # unless others are in it


def clean(root: Path, now: float | None = None) -> None:
    """Remove the folders of writes that died: nobody has written to them for a day."""
    limit = (time.time() if now is None else now) - _STALE_SECONDS
    for folder in list(root.iterdir()) if root.is_dir() else []:
        with contextlib.suppress(OSError):
            if max(entry.stat().st_mtime for entry in (folder, *folder.iterdir())) < limit:
                shutil.rmtree(folder, ignore_errors=True)


def clean_owner(root: Path, owner: str) -> None:
    """Remove all folders of one owner, which has no write under way."""
    for folder in root.glob(f"{_digest(owner)}-*"):
        shutil.rmtree(folder, ignore_errors=True)
    with contextlib.suppress(OSError):
        root.rmdir()
