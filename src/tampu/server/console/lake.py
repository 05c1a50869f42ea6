"""The lake beside the store, if there is one: its report, made at most once a minute, and questions to copy."""

from __future__ import annotations

import threading
import time

from tampu.mcp.lake import lake_of
from tampu.server.settings import ServerSettings

_KEEP_SECONDS = 60.0
_MOST_KEPT = 50
QUESTIONS: dict[str, tuple[str, str]] = {
    "Messages by queue and day": (
        "SELECT day, queue, sum(published) AS published, sum(done) AS done, sum(dead) AS dead\n"
        "FROM gold.queue_minutes GROUP BY ALL ORDER BY day, queue",
        'spark.table("gold.queue_minutes").groupBy("day", "queue").sum("published", "done", "dead")',
    ),
    "What fails most": (
        "SELECT queue, error, attempts, dead, sample_ids FROM gold.failures ORDER BY dead DESC, attempts DESC LIMIT 20",
        'spark.table("gold.failures").orderBy("dead", ascending=False).limit(20)',
    ),
    "The slowest attempts": (
        "SELECT queue, type, id, run, worker FROM silver.attempts ORDER BY run DESC NULLS LAST LIMIT 20",
        'spark.table("silver.attempts").orderBy("run", ascending=False).limit(20)',
    ),
}
"""SQL for `tampu sql`, and the same in PySpark."""


def place(settings: ServerSettings) -> str | None:
    """Where the lake is: the setting, or beside the store's file; None if there is none that this server can read."""
    return lake_of(settings.url, settings.lake)


class Reports:
    """The reports of one server, by tenant. One is made at a time: it takes seconds of processor."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[tuple[str, str, int], tuple[float, str]] = {}

    def page(self, path: str, tenant: str, days: int) -> str:
        """The report as a whole HTML page."""
        with self._lock:
            kept = self._kept.get((path, tenant, days))
            if kept is not None and time.monotonic() - kept[0] < _KEEP_SECONDS:
                return kept[1]
            made = _make(path, tenant, days)
            if len(self._kept) >= _MOST_KEPT:
                self._kept.clear()
            self._kept[path, tenant, days] = (time.monotonic(), made)
            return made


def _make(path: str, tenant: str, days: int) -> str:
    from tampu.lake import insights, report
    from tampu.lake.query import Lake

    return report.page(insights.gather(Lake(path), days=days, tenant=tenant))


def report_headers(headers: dict[str, str]) -> dict[str, str]:
    """The report is a page of its own inside ours: it has its style in it, and neither scripts nor addresses."""
    policy = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'self'"
    return {**headers, "content-security-policy": policy}
