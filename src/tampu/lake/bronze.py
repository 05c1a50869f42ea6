"""Bronze: the journal as it is, and messages as they ended.

Executors open the store themselves and write what they read straight into data files: what the journal says does not
pass through the JVM on its way. (Through `format("tampu")` and a second Python worker the same batch took longer; the
ratio is in docs/decisions/0021-lake-in-spark-sql.md.)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tampu.broker import settings
from tampu.lake.tables import BY_NAME
from tampu.model.journal import Position
from tampu.model.reasons import LEASE_EXPIRED, RETRIES_EXHAUSTED

EVENTS = BY_NAME["bronze.events"]
MESSAGES = BY_NAME["bronze.messages"]
LEAST = 100_000
"""Transitions in a slice: opening the store costs as much as some thousands."""
_FIRST, _MOST = 128, 8192
_FULL = 8 << 20
"""Messages are fetched in batches of about so many bytes."""
_HELD = 128 << 20
"""Payloads of a fetch are no more than this together, however large each may be; but one is always fetched."""


class Slice(msgspec.Struct, frozen=True):
    """after < offset <= upto of one partition of the journal."""

    partition: str
    after: int
    upto: int


def slices(after: Position, upto: Position, most: int) -> list[Slice]:
    """The transitions between two positions, in about ``most`` equal parts, none of them small."""
    total = sum(max(0, end - after.get(p, 0)) for p, end in upto.items())
    size = max(LEAST, -(-total // most))
    return [
        Slice(p, start, min(start + size, end))
        for p, end in sorted(upto.items())
        for start in range(after.get(p, 0), end, size)
    ]


def read_slice(url: str, part: Slice, run: str) -> Iterator[pa.RecordBatch]:
    from tampu.stores.open_store import open_store

    with open_store(url) as store:
        for batch in store.journal(part.partition, part.after, part.upto, None):
            yield event_rows(batch, run)


def event_rows(batch: pa.RecordBatch, run: str) -> pa.RecordBatch:
    """Transitions in the columns of bronze.events."""
    made = {
        "run": pa.repeat(pa.scalar(run, pa.string()), batch.num_rows),
        "day": batch.column("at").cast(pa.date32()),
    }
    return pa.RecordBatch.from_arrays(
        [made[name] if name in made else batch.column(name) for name in EVENTS.schema.names], schema=EVENTS.schema
    )


def ended_messages(url: str, ended: Iterable[pa.RecordBatch], run: str) -> Iterator[pa.RecordBatch]:
    """Makes rows of bronze.messages out of ends: what the store knows of the message now, as it was at that end."""
    from tampu.stores.open_store import open_store

    with open_store(url) as store:
        for batch in ended:
            for part in _of_one_tenant(batch.cast(EVENTS.schema)):
                yield from _fetched(store, part, run)


def _of_one_tenant(batch: pa.RecordBatch) -> Iterator[pa.Table]:
    table = pa.Table.from_batches([batch])
    for tenant in pc.unique(table["tenant"]).to_pylist():
        yield table.filter(pc.equal(table["tenant"], tenant))


def _fetched(store: Any, ends: pa.Table, run: str) -> Iterator[pa.RecordBatch]:
    tenant = ends["tenant"][0].as_py()
    largest = max(
        settings.read(store.document, tenant, queue).max_payload for queue in pc.unique(ends["queue"]).to_pylist()
    )
    start, size = 0, _FIRST
    while start < ends.num_rows:
        size = max(1, min(size, _HELD // largest))
        part = ends.slice(start, size)
        try:
            rows = message_rows(part, store.by_ids(tenant, pc.unique(part["id"]).to_pylist()), run)
        except (pa.ArrowInvalid, pa.ArrowCapacityError):
            # More than a column of Arrow can hold: the queue has taken larger payloads than it does now.
            if size == 1:
                raise
            size //= 2
            continue
        start += size
        yield from rows.to_batches()
        largest = max(largest, pc.max(pc.binary_length(rows["payload"])).as_py() or 0)
        size = min(size * 4, _MOST) if rows.nbytes < _FULL else max(1, size // 4)


def message_rows(ends: pa.Table, known: pa.Table, run: str) -> pa.Table:
    """Each end with the message it is of. A message that has moved on since (it was replayed) keeps what does not
    change; what that end left behind is taken from the journal."""
    known = known.combine_chunks()
    at = pc.index_in(ends["id"], value_set=known["id"])

    def of(name: str) -> pa.ChunkedArray:
        return known[name].take(at)

    came = pc.equal(ends["verb"], "adopt")
    before_fork = pc.if_else(came, pc.less_equal(of("ended_at"), ends["at"]), pc.equal(of("ended_at"), ends["at"]))
    same = pc.fill_null(before_fork, False)
    reason, error = _told_then(ends, of("last_error"))
    null = pa.scalar(None, pa.string())
    payload, result = of("payload"), pc.if_else(same, of("result"), null)
    columns = {
        "id": ends["id"],
        "tenant": ends["tenant"],
        "queue": ends["queue"],
        "state": ends["state"],
        "type": pc.coalesce(of("type"), ends["type"]),
        "attempts": ends["attempt"],
        "ended_at": ends["at"],
        "reason": pc.if_else(same, of("reason"), reason),
        "last_error": pc.if_else(same, of("last_error"), error),
        "payload": payload,
        "result": result,
        "missing": pc.is_null(at),
        "ended_partition": ends["partition"],
        "ended_offset": ends["offset"],
        "run": pa.repeat(pa.scalar(run, pa.string()), ends.num_rows),
        "payload_bytes": pc.binary_length(payload),
        "result_bytes": pc.binary_length(result),
        "day": ends["day"],
    }
    schema = MESSAGES.schema
    made = [columns[f.name] if f.name in columns else of(f.name) for f in schema]
    return pa.table(
        [column.cast(f.type) if column.type != f.type else column for column, f in zip(made, schema, strict=True)],
        schema=schema,
    )


def _told_then(ends: pa.Table, error_now: pa.ChunkedArray) -> tuple[pa.ChunkedArray, pa.ChunkedArray]:
    """Reason and error of ends, by what the journal says: the first line of the error, or the reason where no error was
    given. Of a reject either may be anything: a message that has no error by now had none then."""
    null = pa.scalar(None, pa.string())
    detail = ends["detail"]

    def was(*verbs: str) -> pa.ChunkedArray:
        return pc.is_in(ends["verb"], pa.array(verbs))

    otherwise = pc.invert(pc.equal(ends["state"], "dead"))
    exhausted, blameless = pc.fill_null(pc.equal(detail, RETRIES_EXHAUSTED), False), pc.is_null(error_now)
    reason = pc.case_when(
        pc.make_struct(otherwise, was("nack"), was("reap"), was("reject"), was("adopt")),
        null, RETRIES_EXHAUSTED, LEASE_EXPIRED, pc.if_else(blameless, detail, null), null, detail,
    )  # fmt: skip
    error = pc.case_when(
        pc.make_struct(was("reap", "adopt", "expire"), was("nack"), was("reject")),
        null, pc.if_else(exhausted, null, detail), pc.if_else(blameless, null, detail), detail,
    )  # fmt: skip
    return reason, error
