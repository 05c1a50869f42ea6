"""Rows of the lake as one file: Parquet, CSV, JSON or JSON lines. The file is there whole, or not at all."""

from __future__ import annotations

import base64
import csv
import io
import math
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any
from uuid import uuid4

import msgspec
import pyarrow as pa

from tampu.lake.query import Lake, Questions, as_error, checked, checked_condition
from tampu.model.errors import InvalidMessage, InvalidState

_ROWS = 20_000
FORMATS = ("parquet", "csv", "json", "jsonl")
Batches = Iterator[pa.RecordBatch]


def query_of(lake: Lake, what: str, where: str | None = None) -> str:
    """The query of a table's name or of a query, with a condition on its rows."""
    known = [table.name for table in lake.tables]
    query = f"FROM {what}" if what in known else what.strip().rstrip(";")
    if what not in known and len(what.split()) < 2:
        raise InvalidMessage(
            f"there is no table {what!r:.80}", field="what", hint=f"one of {', '.join(known)}, or a SELECT"
        )
    return query if where is None else f"FROM (\n{query}\n) WHERE {checked_condition(where)}"


def export(
    lake: Lake,
    what: str,
    to: str | os.PathLike[str],
    *,
    where: str | None = None,
    tenant: str | None = None,
    force: bool = False,
    advance: Callable[[int], None] | None = None,
) -> int:
    """Write a table or the answer of a query to a file whose name says the format; how many rows.

    The rows are written to a name of their own beside the file, synced, and renamed. Bytes are written as they are in
    Parquet, and in base64 in the other formats.
    """
    target = Path(to)
    kind = target.suffix.lower().removeprefix(".")
    if kind not in FORMATS:
        raise InvalidMessage(
            f"no format for {target.name!r:.80}", field="to", hint=f"a name that ends in .{', .'.join(FORMATS)}"
        )
    _check_free(target, force=force)
    query = query_of(lake, what, where)
    with lake.ask(tenant=tenant) as questions:
        schema, batches = _batches(questions, checked(questions.connection, query))
        count = 0

        def counted() -> Batches:
            nonlocal count
            for batch in batches:
                yield batch
                count += batch.num_rows
                if advance is not None:
                    advance(batch.num_rows)

        part = target.with_name(f".{target.name}.{uuid4().hex[:12]}.part")
        try:
            with part.open("xb") as file:
                _WRITERS[kind](file, schema, counted())
                file.flush()
                os.fsync(file.fileno())
            _check_free(target, force=force)
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)
    return count


def _check_free(target: Path, *, force: bool) -> None:
    if target.exists() and not force:
        raise InvalidState(f"{target} is there already", field="to", hint="add --force to replace it")
    if not target.parent.is_dir():
        raise InvalidMessage(f"there is no folder {target.parent}", field="to", hint="make it first")


def _batches(questions: Questions, query: str) -> tuple[pa.Schema, Batches]:
    import duckdb

    try:
        reader = questions.connection.sql(query).to_arrow_reader(_ROWS)
    except duckdb.Error as error:
        raise as_error(error) from None

    def read() -> Batches:
        try:
            yield from reader
        except (duckdb.Error, OSError, pa.ArrowException) as error:
            raise as_error(error) from None

    return reader.schema, read()


def _parquet(file: IO[bytes], schema: pa.Schema, batches: Batches) -> None:
    import pyarrow.parquet as pq

    with pq.ParquetWriter(file, schema, compression="zstd") as writer:
        for batch in batches:
            writer.write_batch(batch)


def _csv(file: IO[bytes], schema: pa.Schema, batches: Batches) -> None:
    """Texts as they are, times in ISO 8601, lists and maps as JSON, null as nothing."""
    text = io.TextIOWrapper(file, "utf-8", newline="", write_through=True)
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(schema.names)
    for batch in batches:
        writer.writerows([cell(value) for value in row] for row in rows_of(batch))
    text.detach()


def _objects(schema: pa.Schema, batches: Batches) -> Iterator[bytes]:
    for batch in batches:
        for row in rows_of(batch):
            yield _json(dict(zip(schema.names, map(plain, row), strict=True)))


def _lines(file: IO[bytes], schema: pa.Schema, batches: Batches) -> None:
    """One JSON object per line."""
    file.writelines(text + b"\n" for text in _objects(schema, batches))


def _list(file: IO[bytes], schema: pa.Schema, batches: Batches) -> None:
    """One JSON list of objects."""
    before = b"[\n"
    for text in _objects(schema, batches):
        file.write(before + text)
        before = b",\n"
    file.write(b"\n]\n" if before == b",\n" else b"[]\n")


_WRITERS = {"parquet": _parquet, "csv": _csv, "json": _list, "jsonl": _lines}


def rows_of(batch: pa.RecordBatch) -> Iterator[Sequence[Any]]:
    """Python values, row by row; maps as dicts."""
    columns = [
        column.to_pylist(maps_as_pydicts="lossy") if pa.types.is_nested(column.type) else column.to_pylist()
        for column in batch.columns
    ]
    return zip(*columns, strict=True)


def cell(value: Any) -> Any:
    """A value for a CSV file."""
    found = plain(value)
    return _json(found).decode() if isinstance(found, dict | list) else found


def _json(value: Any) -> bytes:
    return msgspec.json.encode(value, enc_hook=str)


def plain(value: Any) -> Any:
    """A value as JSON and CSV can say it: bytes in base64, no infinities."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    if isinstance(value, dict):
        return {str(name): plain(entry) for name, entry in value.items()}
    if value is None or isinstance(value, str | int | float):
        return value
    return value.isoformat() if hasattr(value, "isoformat") else str(value)
