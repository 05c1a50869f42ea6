"""Silver of a run: the events of each message are brought together and walked over, all tables in one go.

A run sees its new events together with all earlier ones of the messages they belong to: those that had not ended are
carried from run to run, those that are replayed are looked up. So every run tells each message's story from its
beginning and hands out only what the new events completed; cutting the journal elsewhere changes no row.

What is read here is rows for the walk (`walking`), out of data files; the walk is where the counting is. A task holds
so many rows at most (`ROWS`), so memory does not grow with the journal.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from datetime import date
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tampu.lake import sheets
from tampu.lake.files import DataFile, Place
from tampu.lake.hands import Spread
from tampu.lake.tables import BY_NAME
from tampu.lake.walking import CARRIED, TOLD, walk
from tampu.model.journal import Position

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ROWS = 250_000
"""Rows that a task walks over at a time, about."""
_LITTLE = 25_000
"""Fewer are not worth a second task."""
REPLACED = "_state.replaced"

_MESSAGES = ("id", "tenant", "type", "created_at", "payload", "result", "ended_partition", "ended_offset")
_LINEAGE = ("correlation_id", "causation_id", "parent_id", "group", "source")


class Source(msgspec.Struct, frozen=True):
    """A data file and what silver wants of it."""

    place: Place
    file: DataFile
    kind: str
    """``new``, ``old`` or ``returning`` events; or ``bodies``."""
    after: Position = {}
    upto: Position | None = None
    """None: all rows."""
    ids: DataFile | None = None
    """Of returning events: the file that names the messages."""


def read(source: Source) -> Iterator[pa.RecordBatch]:
    """Rows in the columns of `TOLD`."""
    if source.kind == "bodies":
        spec = BY_NAME["bronze.messages"].schema
        schema = pa.schema([spec.field(name) for name in (*_MESSAGES, *_LINEAGE)])
        for batch in sheets.read_batches(source.place, schema, [source.file]):
            yield _body(within(batch, source.after, source.upto, "ended_partition", "ended_offset"))
        return
    wanted = None
    if source.ids is not None:
        schema = pa.schema([("tenant", pa.string()), ("id", pa.string())])
        wanted = pa.Table.from_batches(sheets.read_batches(source.place, schema, [source.ids]), schema)
    for batch in sheets.read_batches(source.place, CARRIED, [source.file]):
        some = within(batch, source.after, source.upto)
        if wanted is not None:
            # By id alone: one of another tenant with the same id is walked for nothing, which changes nothing.
            some = some.filter(pc.is_in(some.column("id"), value_set=wanted["id"]))
        yield _filled(some, {"new": pa.repeat(source.kind == "new", some.num_rows)})


def _body(batch: pa.RecordBatch) -> pa.RecordBatch:
    return _filled(
        batch,
        {
            "partition": batch.column("ended_partition"),
            "offset": batch.column("ended_offset"),
            "at": batch.column("created_at"),
            "new": pa.repeat(True, batch.num_rows),
            "payload_bytes": pc.binary_length(batch.column("payload")),
            "result_bytes": pc.binary_length(batch.column("result")),
        },
    )


def _filled(batch: pa.RecordBatch, made: Mapping[str, pa.Array]) -> pa.RecordBatch:
    """In the columns of `TOLD`; null where there is nothing."""
    known = {**dict(zip(batch.schema.names, batch.columns, strict=True)), **made}
    columns = [
        known[field.name].cast(field.type) if field.name in known else pa.nulls(batch.num_rows, field.type)
        for field in TOLD
    ]
    return pa.RecordBatch.from_arrays(columns, schema=TOLD)


def within(
    batch: pa.RecordBatch,
    after: Position,
    upto: Position | None,
    partition: str = "partition",
    offset: str = "offset",
) -> pa.RecordBatch:
    """The rows past one position and up to another."""
    if upto is None:
        return batch
    wanted = pa.repeat(False, batch.num_rows)
    for p, end in upto.items():
        here = pc.equal(batch.column(partition), p)
        later = pc.greater(batch.column(offset), after.get(p, 0))
        wanted = pc.or_(wanted, pc.and_(here, pc.and_(later, pc.less_equal(batch.column(offset), end))))
    return batch.filter(wanted)


def spread(rows: Mapping[str, int]) -> Spread:
    """All rows of a message into one task, at most about `ROWS` into each.

    ``rows``: how many there are of each tenant. One with few stays in one task and so gets one file a day; one with
    many has tasks for itself, among which its messages are divided.
    """

    def spread(whole: DataFrame, parallel: int) -> DataFrame:
        from pyspark.sql import functions as F

        total = sum(rows.values())
        tasks = max(-(-total // ROWS), min(parallel, -(-total // _LITTLE)), 1)
        share = max(1, -(-total // tasks))
        place = F.pmod(F.hash("tenant"), F.lit(tasks))
        start = 0
        for tenant, count in sorted(rows.items(), key=lambda one: (-one[1], one[0])):
            width = min(tasks, -(-count // share))
            if width <= 1:
                break
            own = F.pmod(F.lit(start) + F.pmod(F.hash("id"), F.lit(width)), F.lit(tasks))
            place = F.when(F.col("tenant") == tenant, own).otherwise(place)
            start += width
        return whole.repartitionById(tasks, place)

    return spread


def sorted_out(
    rows: pa.Table, wanted: Collection[str], days: Collection[date] | None = None
) -> Iterator[tuple[str, pa.Table]]:
    """The walk, and of its results those for these tables; of tables by day, those of these days."""
    walked = walk(rows)
    for name, found in (
        ("silver.attempts", walked.attempts),
        ("silver.messages", walked.messages),
        ("_state.stays", walked.stays),
        (REPLACED, walked.replaced),
    ):
        if name in wanted:
            yield name, found if days is None else found.filter(pc.is_in(found["day"], pa.array(days, pa.date32())))
    for name, found in (("_state.waiting", walked.waiting), ("_state.carried", walked.carried)):
        if name in wanted:
            yield name, found
