"""Erasure: messages become anonymous in the lake, in the files that hold something of them and in no others.

Their rows stay, so that all counts stay right: the id becomes a random one, the same in all tables, and what somebody
wrote into the message, or what an error says, becomes null. The old files are on the disk until a vacuum. The report
can be checked again later: whether any table still knows one of the ids, and whether an old file is still there.

Not here: the store, from which `tampu erase` removes messages, and users' tables, which a backfill computes anew.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection
from datetime import UTC, datetime
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tampu.lake import maintenance, state
from tampu.lake.storage import parquet
from tampu.lake.storage.files import DataFile
from tampu.lake.storage.lake import Lake, LakeTable
from tampu.lake.storage.snapshots import Rewritten, Snapshot, exactly
from tampu.model.errors import InvalidState, NotFound, VersionConflict

_PRIVATE = {
    "payload", "headers", "labels", "key", "idempotency_key", "correlation_id", "causation_id", "parent_id", "group",
    "source", "reason", "last_error", "result", "error", "detail",
}  # fmt: skip
_LEASE = "lease_until="
"""A detail that says when a lease ended, which silver needs."""
_FAILURES = "gold.failures"
_TRIES = 5

Change = Callable[[pa.RecordBatch], pa.RecordBatch]
Hits = list[tuple[DataFile, int]]
"""Files that have something of the messages, and in how many rows."""


class Rewrite(msgspec.Struct, frozen=True):
    """What was done in one table."""

    table: str
    rows: int
    files: list[str]
    """Those that do not count any more."""


class Erasure(msgspec.Struct, frozen=True):
    """The report."""

    tenant: str
    ids: list[str]
    at: datetime
    tables: list[Rewrite]
    backfill: list[str]
    """Days of users' tables that are to be computed anew, if there are such tables."""

    @property
    def rows(self) -> int:
        return sum(one.rows for one in self.tables)


def erase(lake: Lake, tenant: str, ids: Collection[str]) -> Erasure:
    """Make these messages anonymous. They must have ended; may be called again after it was stopped."""
    wanted = pa.array(sorted(set(ids)), pa.string())
    if _hits(state.table(lake, state.CARRIED).find(), tenant, wanted):
        raise InvalidState("some of the messages have not ended", field="ids", hint="cancel them, and run the pipeline")
    own = lake.own_tables()
    tables = [table for table in maintenance.tables(lake) if table.spec.name not in own]
    found = {
        t.spec.name: hits for t in tables if "id" in t.spec.schema.names and (hits := _hits(t.find(), tenant, wanted))
    }
    if not found:
        raise NotFound("the lake has none of these messages", field="ids", hint="tampu sql finds them")
    anonymous = pa.array([str(uuid.uuid4()) for _ in wanted], pa.string())
    errors = _errors(lake, tenant, wanted) if "_facts.failures" in found else set()
    done = [_failures(lake.table(_FAILURES), tenant, wanted, anonymous, errors)]
    done += [
        _replaced(table, lambda batch: _blanked(batch, wanted, anonymous), lambda now: _hits(now, tenant, wanted))
        for table in tables
        if table.spec.name in found
    ]
    days = sorted({file.day for hits in found.values() for file, _ in hits if file.day} if own else ())
    return Erasure(tenant, wanted.to_pylist(), datetime.now(UTC), [one for one in done if one.files], days)


def verify(lake: Lake, report: Erasure) -> list[str]:
    """What is still there of what was erased, in words; nothing, when all is gone."""
    wanted = pa.array(report.ids, pa.string())
    found = []
    for table in maintenance.tables(lake):
        if "id" in table.spec.schema.names and (hits := _hits(table.find(), report.tenant, wanted)):
            found.append(f"{table.spec.name}: {len(hits)} files have rows of them")
    for one in report.tables:
        left = [path for path in one.files if state.table(lake, one.table).place.exists(path)]
        if left:
            found.append(f"{one.table}: {len(left)} old files are there until tampu pipeline vacuum removes them")
    return found


def _hits(found: Snapshot | None, tenant: str, wanted: pa.Array) -> Hits:
    """The files of a tenant in which one of the ids is."""
    if found is None:
        return []
    columns = ["id"] if found.table.parted else ["id", "tenant"]
    return _counted(found, tenant, columns, lambda batch: _hit(batch, wanted, tenant).true_count)


def _counted(found: Snapshot, tenant: str, columns: list[str], count: Callable[[pa.RecordBatch], int]) -> Hits:
    files = [file for file in found.files() if not found.table.parted or file.tenant == tenant]
    counts = [(file, sum(map(count, found.peeked(columns, [file])))) for file in files]
    return [(file, rows) for file, rows in counts if rows]


def _hit(batch: pa.RecordBatch, wanted: pa.Array, tenant: str | None = None) -> pa.BooleanArray:
    hit = pc.is_in(batch.column("id"), value_set=wanted)
    if tenant is not None and "tenant" in batch.schema.names:
        hit = pc.and_(hit, pc.equal(batch.column("tenant"), tenant))
    return hit


def _blanked(batch: pa.RecordBatch, wanted: pa.Array, anonymous: pa.Array) -> pa.RecordBatch:
    hit = _hit(batch, wanted)
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    kept = pc.fill_null(pc.starts_with(columns["detail"], _LEASE), False) if "detail" in columns else None
    for name, column in columns.items():
        if name in _PRIVATE:
            stays = pc.invert(hit) if name != "detail" else pc.or_(pc.invert(hit), kept)
            columns[name] = _where(stays, column)
    columns["id"] = pc.if_else(hit, anonymous.take(pc.index_in(columns["id"], value_set=wanted)), columns["id"])
    if "missing" in columns:
        columns["missing"] = pc.or_(columns["missing"], hit)
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=batch.schema)


def _where(stays: pa.BooleanArray, column: pa.Array) -> pa.Array:
    """The values that stay; null for the others. (if_else knows no maps.)"""
    at = pc.if_else(stays, pa.array(range(len(column)), pa.int64()), pa.scalar(None, pa.int64()))
    return column.take(at)


def _errors(lake: Lake, tenant: str, wanted: pa.Array) -> set[str]:
    """What the failures of these messages said."""
    found = state.table(lake, "_facts.failures").open()
    batches = found.peeked(["id", "error"], [file for file, _ in _hits(found, tenant, wanted)])
    return {text for b in batches for text in b.filter(_hit(b, wanted)).column("error").to_pylist() if text}


def _failures(table: LakeTable, tenant: str, wanted: pa.Array, anonymous: pa.Array, errors: Collection[str]) -> Rewrite:
    """gold.failures names messages and quotes the latest error."""
    names = dict(zip(wanted.to_pylist(), anonymous.to_pylist(), strict=True))

    def touched(row: dict[str, Any]) -> bool:
        return row["error"] in errors or not names.keys().isdisjoint(row["sample_ids"] or ())

    def change(batch: pa.RecordBatch) -> pa.RecordBatch:
        rows = batch.to_pylist()
        for row in filter(touched, rows):
            row["sample_ids"] = [names.get(id, id) for id in row["sample_ids"] or ()]
            row["error"] = None if row["error"] in errors else row["error"]
        return pa.RecordBatch.from_pylist(rows, schema=batch.schema)

    def hits(found: Snapshot) -> Hits:
        return _counted(found, tenant, ["error", "sample_ids"], lambda batch: sum(map(touched, batch.to_pylist())))

    return _replaced(table, change, hits)


def _replaced(table: LakeTable, change: Change, hits: Callable[[Snapshot], Hits]) -> Rewrite:
    """The files with hits, written anew in one commit; again, where they were joined meanwhile."""
    for _ in range(_TRIES):
        found = table.find()
        chosen = hits(found) if found is not None else []
        if found is None or not chosen:
            return Rewrite(table.spec.name, 0, [])
        files = [file for file, _ in chosen]
        batches = parquet.read_batches(table.place, table.spec.schema, files)
        new = list(parquet.write_batches(table.target, "erase", map(change, batches)))
        try:
            found.commit(new, None, drop=exactly(file.path for file in files))
        except Rewritten:
            continue
        return Rewrite(table.spec.name, sum(count for _, count in chosen), [file.path for file in files])
    raise VersionConflict(f"{table.spec.name} is rewritten all the time", hint="run it again later")
