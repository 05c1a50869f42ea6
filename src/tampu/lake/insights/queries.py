"""What the lake says of the last days, gathered into plain values; `tampu insights` and the report only draw them.

Counts come from gold, percentiles from silver.attempts: that of a week cannot be had from those of its minutes. The
period ends with the newest minute of the lake, not now, so that a lake that is behind is still described correctly.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Any

from tampu.lake.insights.clustering import Cluster, cluster
from tampu.lake.insights.findings import (
    Insights,
    OwnLine,
    QueueLine,
    Series,
    SloLine,
    TaskLine,
    TenantLine,
    Totals,
    WorkerLine,
)
from tampu.lake.insights.forecast import WINDOWS, HourOfWeek, Minute, capacity, drain
from tampu.lake.query import Lake, Questions
from tampu.lake.tables import Table
from tampu.model.errors import InvalidMessage

MOST_DAYS = 3660
_MOST_LINES = 100
_MOST_POINTS = 180
_STEPS = (60, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400)
_SHORTEST = timedelta(minutes=30)
"""A chart spans at least so much, also when the lake has only just begun."""
_PERCENTILES = ", ".join(
    f"number(quantile_cont({column}, {p / 100})) AS {column}_p{p}" for column in ("wait", "run") for p in (50, 95, 99)
)
_WEEKS = timedelta(days=28)
"""How far back the hours of the week are looked at, and how old the last word of a quiet queue may be."""


def gather(lake: Lake, *, days: int = 7, tenant: str | None = None, now: datetime | None = None) -> Insights:
    """Everything the insights show, of all tenants or of one."""
    if not 1 <= days <= MOST_DAYS:
        raise InvalidMessage(f"days must be a number from 1 to {MOST_DAYS}", field="days")
    with lake.ask(tenant=tenant) as ask:
        newest = ask.one("SELECT max(minute) AS at FROM gold.queue_minutes")["at"]
        until = newest.astimezone(UTC) + timedelta(minutes=1) if newest else (now or datetime.now(UTC))
        last = (until - timedelta(microseconds=1)).date()
        since = datetime(last.year, last.month, last.day, tzinfo=UTC) - timedelta(days=days - 1)
        period = _Period(ask, since, until)
        series = period.series()
        queues = period.queues(series)
        return Insights(
            lake=lake.path,
            tenant=tenant,
            days=days,
            since=since,
            until=until,
            empty=newest is None,
            totals=period.totals(),
            series=series,
            queues=queues,
            failures=period.failures(),
            tasks=period.tasks(),
            workers=period.workers(),
            slo=period.slo(),
            week=period.week(),
            tenants=period.tenants(),
            own=[period.own(table) for table in lake.own.values()],
        )


class _Period:
    """The questions, all of one span of time."""

    def __init__(self, ask: Questions, since: datetime, until: datetime) -> None:
        self.ask, self.since, self.until = ask, since, until
        self.days: dict[str, Any] = {"first": since.date(), "last": (until - timedelta(microseconds=1)).date()}
        self.most = self.days | {"most": _MOST_LINES}
        # Numbers that can be drawn: sums that are 0 when there is nothing, and no infinities.
        ask.run("CREATE TEMP MACRO total(x) AS coalesce(sum(x), 0)")
        ask.run("CREATE TEMP MACRO mark(x, step) AS CAST(floor(epoch(x) / step) AS BIGINT) * step")
        ask.run("CREATE TEMP MACRO number(x) AS CASE WHEN isfinite(CAST(x AS DOUBLE)) THEN CAST(x AS DOUBLE) END")
        # Minutes of the period, and of the weeks before for what a quiet queue said last.
        back = min(since, until - _WEEKS)
        ask.run(
            "CREATE TEMP TABLE minutes AS SELECT tenant, queue, minute, published, replayed, done, failed, dead,"
            " coalesce(done, 0) + coalesce(dead, 0) + coalesce(cancelled, 0) + coalesce(expired, 0) AS ended,"
            " coalesce(depth, 0) AS depth, oldest FROM gold.queue_minutes WHERE day >= $day AND minute >= $since",
            {"day": back.date(), "since": back},
        )
        ask.run(
            "CREATE TEMP TABLE attempts AS SELECT tenant, queue, type, worker, ended_at, wait, run"
            " FROM silver.attempts WHERE day BETWEEN $first AND $last",
            self.days,
        )

    def _shares(self, by: str) -> str:
        """Percentiles of deliveries by these columns, to join with; of all of them without any."""
        return f"(SELECT {by}{', ' if by else ''}{_PERCENTILES} FROM attempts{' GROUP BY ' if by else ''}{by})"

    def totals(self) -> Totals:
        row = self.ask.one(
            "SELECT total(published) AS published, total(done) AS done, total(failed) AS failed, total(dead) AS dead,"
            " total(ended) AS ended FROM minutes WHERE minute >= $since",
            {"since": self.since},
        )
        row |= self.ask.one(
            "SELECT total(depth) AS depth, count(*) AS queues FROM"
            " (SELECT arg_max(depth, minute) AS depth FROM minutes GROUP BY tenant, queue)"
        )
        row |= self.ask.one(
            f"SELECT wait_p95, run_p95, coalesce((SELECT number(sum(run)) FROM attempts), 0.0) AS run_seconds"
            f" FROM {self._shares('')}"
        )
        return Totals(**row, failure_ratio=_share(row["failed"], row["done"]))

    def series(self) -> Series:
        first = self.ask.one("SELECT min(minute) AS at FROM minutes WHERE minute >= $since", {"since": self.since})[
            "at"
        ]
        start = min(first.astimezone(UTC), self.until - _SHORTEST) if first else self.until
        span = (self.until - start).total_seconds()
        step = next((s for s in _STEPS if span / s <= _MOST_POINTS), 86_400 * math.ceil(span / 86_400 / _MOST_POINTS))
        begin = int(start.timestamp() // step * step)
        marks = list(range(begin, math.ceil(self.until.timestamp()), step)) if first else []
        self.step, self.marks = step, marks
        counts = self._by_mark(
            "SELECT mark(minute, $step) AS mark, total(published) AS published,"
            " total(done) AS done, total(failed) AS failed, total(dead) AS dead FROM minutes WHERE minute >= $since"
            " GROUP BY mark",
            {"since": self.since, "step": step},
        )
        waits = self._by_mark(
            f"SELECT mark(ended_at, $step) AS mark, {_PERCENTILES} FROM attempts GROUP BY mark", {"step": step}
        )
        depth = self._by_mark(
            "WITH marks AS (SELECT unnest($marks) AS mark), queues AS (SELECT DISTINCT tenant, queue FROM minutes),"
            " every AS (SELECT * FROM marks CROSS JOIN queues)"
            " SELECT every.mark, sum(m.depth) AS depth FROM every ASOF JOIN minutes m ON m.tenant = every.tenant"
            " AND m.queue = every.queue AND to_timestamp(every.mark + $step) > m.minute GROUP BY every.mark",
            {"marks": marks or [0], "step": step},
        )

        def column(found: dict[int, dict[str, Any]], name: str, otherwise: int | None) -> list[Any]:
            return [found[mark][name] if mark in found else otherwise for mark in marks]

        return Series(
            step=step,
            at=[datetime.fromtimestamp(mark, UTC) for mark in marks],
            depth=column(depth, "depth", 0),
            **{name: column(counts, name, 0) for name in ("published", "done", "failed", "dead")},
            **{name: column(waits, name, None) for name in ("wait_p50", "wait_p95", "wait_p99")},
        )

    def _by_mark(self, sql: str, parameters: dict[str, Any]) -> dict[int, dict[str, Any]]:
        return {row["mark"]: row for row in self.ask.rows(sql, parameters)}

    def queues(self, series: Series) -> list[QueueLine]:
        lines = self.ask.rows(
            "FROM (SELECT tenant, queue, total(if(minute >= $since, published, NULL)) AS published,"
            " total(if(minute >= $since, ended, NULL)) AS ended, total(if(minute >= $since, done, NULL)) AS done,"
            " total(if(minute >= $since, failed, NULL)) AS failed, total(if(minute >= $since, dead, NULL)) AS dead,"
            " arg_max({minute: minute, depth: depth, oldest: number(oldest)}, minute) AS latest, any_value(wait_p95)"
            f" AS wait_p95, any_value(run_p95) AS run_p95 FROM minutes LEFT JOIN {self._shares('tenant, queue')}"
            " USING (tenant, queue) GROUP BY tenant, queue) ORDER BY published + ended DESC, tenant, queue LIMIT $most",
            {"since": self.since, "most": _MOST_LINES},
        )
        recent = self._grouped(
            "SELECT tenant, queue, minute, coalesce(published, 0) + coalesce(replayed, 0) AS came, ended, depth"
            " FROM minutes WHERE minute >= $since",
            {"since": self.until - max(WINDOWS)},
        )
        steps = self._grouped(
            "SELECT tenant, queue, mark(minute, $step) AS mark, total(published) AS published FROM minutes"
            " WHERE minute >= $since GROUP BY ALL",
            {"since": self.since, "step": series.step},
        )
        found = []
        for line in lines:
            name, latest, done = (line["tenant"], line["queue"]), line.pop("latest"), line.pop("done")
            minutes = [Minute(r["minute"], r["came"], r["ended"], r["depth"]) for r in recent.get(name, [])]
            if latest["minute"] < self.until - max(WINDOWS):
                minutes.insert(0, Minute(latest["minute"], 0, 0, latest["depth"]))
            age = (self.until - latest["minute"]).total_seconds() - 60
            by_step = {row["mark"]: row["published"] for row in steps.get(name, [])}
            found.append(
                QueueLine(
                    **line,
                    failure_ratio=_share(line["failed"], done),
                    depth=latest["depth"],
                    oldest=latest["oldest"] + age if latest["depth"] and latest["oldest"] else None,
                    drain=drain(minutes, self.until),
                    published_by_step=[by_step.get(mark, 0) for mark in self.marks],
                )
            )
        return found

    def _grouped(self, sql: str, parameters: dict[str, Any]) -> dict[tuple[str, str], list[dict[str, Any]]]:
        found: dict[tuple[str, str], list[dict[str, Any]]] = {}
        for row in self.ask.rows(sql, parameters):
            found.setdefault((row["tenant"], row["queue"]), []).append(row)
        return found

    def failures(self) -> list[Cluster]:
        rows = self.ask.rows(
            "SELECT tenant, queue, fingerprint, error, attempts, messages, dead, types, first_at, last_at, sample_ids"
            " FROM gold.failures WHERE day BETWEEN $first AND $last ORDER BY dead DESC, attempts DESC LIMIT 20000",
            self.days,
        )
        return cluster(rows)[:_MOST_LINES]

    def tasks(self) -> list[TaskLine]:
        rows = self.ask.rows(
            "SELECT t.tenant, t.queue, coalesce(t.type, '') AS type, total(deliveries) AS deliveries,"
            " total(failed) AS failed, total(dead) AS dead, any_value(s.run_p50) AS run_p50,"
            " any_value(s.run_p95) AS run_p95, any_value(s.run_p99) AS run_p99"
            f" FROM gold.tasks t LEFT JOIN {self._shares('tenant, queue, type')} s ON t.tenant = s.tenant"
            " AND t.queue = s.queue AND t.type IS NOT DISTINCT FROM s.type"
            " WHERE day BETWEEN $first AND $last GROUP BY t.tenant, t.queue, t.type"
            " ORDER BY coalesce(any_value(s.run_p95), 0) DESC, t.tenant, t.queue, t.type LIMIT $most",
            self.most,
        )
        return [TaskLine(**row) for row in rows]

    def workers(self) -> list[WorkerLine]:
        rows = self.ask.rows(
            "SELECT tenant, worker, total(deliveries) AS deliveries, total(done) AS done, total(failed) AS failed,"
            " total(lost) AS lost, coalesce(number(sum(run_seconds)), 0.0) AS run_seconds,"
            " any_value(s.run_p95) AS run_p95, max(last_at) AS last_at"
            f" FROM gold.workers LEFT JOIN {self._shares('tenant, worker')} s USING (tenant, worker)"
            " WHERE day BETWEEN $first AND $last GROUP BY tenant, worker"
            " ORDER BY deliveries DESC, tenant, worker LIMIT $most",
            self.most,
        )
        return [WorkerLine(**row | {"worker": row["worker"] or ""}) for row in rows]

    def slo(self) -> list[SloLine]:
        rows = self.ask.rows(
            "SELECT *, good / nullif(total, 0) AS ratio, CASE WHEN target < 1 THEN (1 - ratio) / (1 - target)"
            " WHEN total > 0 AND target IS NOT NULL THEN CAST(total - good AS DOUBLE) END AS burn FROM (SELECT tenant,"
            " queue, coalesce(objective, '') AS objective, number(target) AS target, number(within) AS within,"
            " total(good) AS good, total(total) AS total, list({day: day, burn: number(burn)} ORDER BY day) AS days"
            " FROM gold.slo WHERE day BETWEEN $first AND $last GROUP BY ALL)"
            " ORDER BY tenant, queue, objective, within LIMIT $most",
            self.most,
        )
        found = [SloLine(**row | {"days": [(entry["day"], entry["burn"]) for entry in row["days"]]}) for row in rows]
        return sorted(found, key=lambda line: -(line.burn or 0.0))

    def week(self) -> list[HourOfWeek]:
        rows = self.ask.rows(
            "SELECT date_trunc('hour', minute) AS hour, sum(published) AS n FROM minutes GROUP BY ALL", {}
        )
        arrivals = {row["hour"].astimezone(UTC): int(row["n"] or 0) for row in rows}
        used = self.ask.one(
            "SELECT coalesce(number(sum(run_seconds) / nullif(sum(published), 0)), 0.0) AS each FROM gold.tenant_days"
            " WHERE day >= $day",
            {"day": min(arrivals, default=self.since).date()},
        )
        return capacity(arrivals, used["each"])

    def tenants(self) -> list[TenantLine]:
        rows = self.ask.rows(
            "SELECT tenant, total(published) AS published, total(deliveries) AS deliveries, total(done) AS done,"
            " total(dead) AS dead, coalesce(number(sum(run_seconds)), 0.0) AS run_seconds,"
            " total(payload_bytes) AS payload_bytes FROM gold.tenant_days WHERE day BETWEEN $first AND $last"
            " GROUP BY tenant ORDER BY published DESC, tenant LIMIT $most",
            self.most,
        )
        return [TenantLine(**row) for row in rows]

    def own(self, table: Table) -> OwnLine:
        counted = f"SELECT count(*) AS rows, max(day) AS newest FROM {table.name} WHERE day BETWEEN $first AND $last"
        return OwnLine(table=table.name, about=table.about, **self.ask.one(counted, self.days))


def _share(failed: Any, done: Any) -> float | None:
    return float(failed) / float(failed + done) if failed + done else None
