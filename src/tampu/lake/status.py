"""How a lake stands, without Spark: what each table has, and how far it is behind the journal."""

from __future__ import annotations

from typing import Any

from tampu.lake import lineage, state
from tampu.lake.state import Registration
from tampu.lake.storage.lake import Lake
from tampu.lake.storage.urls import absolute
from tampu.lake.tables import BY_NAME
from tampu.model.journal import Position
from tampu.model.times import SECOND, moment
from tampu.stores.open_store import open_store
from tampu.stores.port import ArrowStore


def behind(position: Position, latest: Position) -> int:
    """Transitions between two positions."""
    return sum(max(0, end - position.get(p, 0)) for p, end in latest.items())


def lag(store: ArrowStore, position: Position) -> tuple[int, float]:
    """(transitions, seconds since the oldest of them) that a reader at this position has not got."""
    first, latest = store.bounds()
    oldest: int | None = None
    for p, end in latest.items():
        after = max(position.get(p, 0), first.get(p, 0))
        if after < end:
            for batch in store.journal(p, after, after + 1, None):
                at = int(batch.column("at").cast("int64")[0].as_py())
                oldest = at if oldest is None else min(oldest, at)
                break
    seconds = 0.0 if oldest is None else max(0.0, (store.now() - oldest) / SECOND)
    return behind(position, latest), seconds


def status(url: str, lake: Lake, name: str) -> dict[str, Any]:
    reader = state.reader_name(name)
    with open_store(absolute(url)) as store:
        _, latest = store.bounds()
        known = Registration(store, reader).reader
        messages, seconds = lag(store, known.position if known else {})
    tables = []
    for spec in (*BY_NAME.values(), *lake.own_tables().values()):
        found = lake.table(spec).find()
        if found is None:
            continue
        position = found.position(reader, latest)
        tables.append(
            {
                "table": spec.name,
                "version": found.version,
                "schema": found.schema_version(),
                "position": position,
                "behind": behind(position, latest),
                "rows": found.rows(),
                "files": len(found.files()),
                "bytes": found.size(),
            }
        )
    runs = lineage.latest(lake, 1)
    return {
        "lake": lake.uri,
        "reader": reader,
        "registered": known is not None,
        "position": known.position if known else None,
        "moved_at": moment(known.moved_us) if known else None,
        "archive_after": None if known is None or known.archive_after_us is None else known.archive_after_us / SECOND,
        "latest": latest,
        "lag_messages": messages,
        "lag_seconds": round(seconds, 3),
        "tables": tables,
        "last_run": runs[0] if runs else None,
    }
