"""What tools read from the lake, without Spark. It has rows of all tenants: only those of one are read."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import Any

from tampu.mcp import views

_LINES = 10


def lake_of(url: str, given: str | None = None) -> str | None:
    """The path of the lake of a store, if one can be read here: the given one, TAMPU_LAKE, or beside the store's file.

    Nothing is imported for it: a server that nobody asks about its lake does not load Arrow.
    """
    path = given or os.environ.get("TAMPU_LAKE")
    if not path:
        file = url.partition("?")[0].removeprefix("sqlite:///")
        if "://" in file:
            return None
        path = str(Path(file).with_suffix(".lake"))
    if importlib.util.find_spec("deltalake") is None or importlib.util.find_spec("duckdb") is None:
        return None
    return path if "://" in path or Path(path).is_dir() else None


def insights(path: str, tenant: str, days: int) -> dict[str, Any]:
    """The report of `tampu insights`, its first lines."""
    from tampu.lake.insights import gather
    from tampu.lake.query import Lake

    found = gather(Lake(path), days=days, tenant=tenant)
    busiest = sorted(found.week, key=lambda cell: -cell.p95)[:3]
    lines: dict[str, Any] = {}
    for name in ("queues", "failures", "tasks", "workers", "slo"):
        whole = views.plain(getattr(found, name)[:_LINES], views.SHORT)
        for line in whole:
            line.pop("published_by_step", None)
            line.pop("days", None)
        lines[name] = whole
    return {
        "source": "lake",
        "since": found.since,
        "until": found.until,
        "empty": found.empty,
        "totals": views.plain(found.totals),
        **lines,
        "busiest_hours_utc": views.plain(busiest),
    }


def similar(path: str, tenant: str, fingerprint: str) -> list[dict[str, Any]]:
    """Failures with the same fingerprint, by queue, of all days in the lake."""
    from tampu.lake.query import Lake

    with Lake(path).ask(tenant=tenant) as ask:
        rows = ask.rows(
            "SELECT queue, CAST(sum(attempts) AS BIGINT) AS attempts, CAST(sum(messages) AS BIGINT) AS messages,"
            " CAST(sum(dead) AS BIGINT) AS dead, min(first_at) AS first_at, max(last_at) AS last_at,"
            " count(DISTINCT day) AS days, any_value(sample_ids) AS sample_ids FROM gold.failures"
            " WHERE fingerprint = $fingerprint GROUP BY queue ORDER BY attempts DESC, queue LIMIT 20",
            {"fingerprint": fingerprint},
        )
    return [views.plain(row, views.SHORT) for row in rows]
