"""The ends that a replay is of: chosen in the lake, and read in their order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import date

import msgspec

from tampu.lake.query import Questions, as_error, fetched

BATCH = 500
_BATCH_BYTES = 8 << 20
_ALL = 2**62

Place = tuple[date, str, int, str]
"""(day, partition, offset, id): the order in which a replay goes."""


class Row(msgspec.Struct, frozen=True, gc=False):
    """A row of bronze.messages, in the order in which `rows` asks for its columns."""

    day: date
    partition: str
    offset: int
    id: str
    queue: str
    type: str | None
    payload: bytes | None
    content_type: str | None
    headers: dict[str, str] | None
    labels: dict[str, str] | None
    priority: int | None
    group: str | None
    correlation_id: str | None
    missing: bool | None

    @property
    def position(self) -> Place:
        return self.day, self.partition, self.offset, self.id


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """The note a replay keeps in the store: what it is, and how far it came."""

    where: str | None
    queue: str | None
    ids: list[str] | None
    to: str | None
    upto: dict[str, int]
    """The last offset of the lake that belongs to it, by partition."""
    position: Place | None = None
    """Of the last row that is done with."""
    seen: int = 0


def choose(lake: Questions, progress: Progress, limit: int | None) -> None:
    """The rows that are left, narrow, in the table `chosen` of the connection: of each message only its last end."""
    import duckdb

    lake.run("CREATE TEMP TABLE upto (p VARCHAR, o BIGINT)")
    for end in progress.upto.items():
        lake.run("INSERT INTO upto VALUES (?, ?)", end)
    lake.run(
        "CREATE TEMP TABLE latest AS SELECT id, unnest(max({ended: ended_at, ended_partition: "
        "ended_partition, ended_offset: ended_offset})) FROM bronze.messages JOIN upto"
        " ON ended_partition = p AND ended_offset <= o GROUP BY id"
    )
    found = lake.connection.sql(
        "SELECT m.* FROM bronze.messages m SEMI JOIN latest l USING (id, ended_partition, ended_offset)"
    )
    try:
        if progress.where is not None:
            found = found.filter(progress.where)
        if progress.queue is not None:
            found = found.filter(duckdb.ColumnExpression("queue") == duckdb.ConstantExpression(progress.queue))
        if progress.ids is not None:
            wanted = map(duckdb.ConstantExpression, progress.ids)
            found = found.filter(duckdb.ColumnExpression("id").isin(*wanted))
        found.project(
            "day, ended_partition, ended_offset, id, queue, ended_at, coalesce(missing, false) AS gone"
        ).create("matching")
    except duckdb.Error as error:
        raise as_error(error, "where") from None
    after = progress.position or (date.min, "", 0, "")
    lake.run(
        "CREATE TEMP TABLE chosen AS FROM matching WHERE (day, ended_partition, ended_offset, id) > (?, ?, ?, ?)"
        " ORDER BY day, ended_partition, ended_offset, id LIMIT ?",
        [*after, _ALL if limit is None else max(0, limit - progress.seen)],
    )


def rows(lake: Questions) -> Iterator[Row]:
    """The chosen rows with their payloads; day by day, so that only those of a day are in memory."""
    for day in [row["day"] for row in lake.rows("SELECT DISTINCT day FROM chosen ORDER BY day")]:
        answer = lake.run(
            "SELECT day, ended_partition, ended_offset, id, queue, type, payload, content_type, headers, labels,"
            ' priority, "group", correlation_id, missing FROM bronze.messages'
            " SEMI JOIN chosen USING (id, ended_partition, ended_offset)"
            " WHERE day = ? ORDER BY ended_partition, ended_offset, id",
            [day],
        )
        for values in fetched(answer, BATCH):
            yield Row(*values)


def batches(chosen: Iterable[Row], most: int) -> Iterator[list[Row]]:
    batch: list[Row] = []
    size = 0
    for row in chosen:
        batch.append(row)
        size += len(row.payload or b"")
        if len(batch) >= most or size >= _BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
