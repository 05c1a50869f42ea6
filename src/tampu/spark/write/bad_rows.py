"""Rows that cannot become messages: listed in the error, or saved in a folder of Parquet files."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tampu.model.errors import InvalidConfig, InvalidMessage
from tampu.spark.write import values
from tampu.spark.write.rows import BAD, Bad
from tampu.spark.write.staging import Stage

MOST_REASONS = 5
_REASON_CHARACTERS = 300


class BadRows:
    """The bad rows of one attempt."""

    def __init__(self, stage: Stage, *, keep: bool) -> None:
        self._stage = stage
        self._keep = keep
        self.count = 0
        self.reasons: list[str] = []

    @property
    def where(self) -> str | None:
        """Where they are staged; None if they are not saved."""
        return self._stage.where if self._stage.rows else None

    def add(self, batch: pa.RecordBatch, faults: Sequence[Bad], job: str, partition: int) -> None:
        self.count += len(faults)
        for fault in faults[: MOST_REASONS - len(self.reasons)]:
            self.reasons.append(f"partition {partition} row {fault.row}: {fault.error}"[:_REASON_CHARACTERS])
        if self._keep and faults:
            found = [
                (job, partition, fault.row, fault.error.field, str(fault.error), values.show(batch, fault.place))
                for fault in faults
            ]
            arrays = [pa.array(column, kind.type) for column, kind in zip(zip(*found, strict=True), BAD, strict=True)]
            self._stage.add(pa.record_batch(arrays, schema=BAD))

    def close(self) -> None:
        self._stage.close()

    def discard(self) -> None:
        self._stage.discard()


def error(count: int, total: int, reasons: Sequence[str], *, published: bool = False) -> InvalidMessage:
    first = "; ".join(reasons[:MOST_REASONS])
    so_far = "" if published else " and nothing was published"
    return InvalidMessage(
        f"{count} of {total} rows cannot become messages{so_far}: {first}",
        hint='correct them, or save them as Parquet: .option("badRows", "a folder")',
    )


def folder(given: str) -> Path:
    """The folder for bad rows, which the driver must be able to write to."""
    scheme, mark, rest = given.partition("://")
    path = Path(rest if mark and scheme == "file" else given)
    if mark and scheme != "file":
        raise InvalidConfig(
            f"bad rows cannot be saved in {scheme}://",
            field="badRows",
            hint="use a folder that the driver can write to, or fail",
        )
    if path.exists() and not path.is_dir():
        raise InvalidConfig(f"{path} is not a folder", field="badRows", hint="use a folder, or fail")
    return path


def keep(batches: Iterable[pa.RecordBatch], folder: Path, job: str, partition: int) -> None:
    """Write the bad rows of an attempt to the folder. The same job writes the same file again."""
    folder.mkdir(parents=True, exist_ok=True)
    name = hashlib.blake2b(job.encode(), digest_size=8).hexdigest()
    target = folder / f"{name}-{partition}.parquet"
    unfinished = folder / f"_{target.name}"  # Spark does not read files with this prefix
    with pq.ParquetWriter(str(unfinished), BAD) as sink:
        for batch in batches:
            sink.write_batch(batch)
    unfinished.replace(target)
