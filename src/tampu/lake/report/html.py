"""The insights as one HTML file that stands alone: no script, no network, light and dark, for a screen or a phone.

Every text that came from a message, an error or a name goes through `escape`; and should one ever slip past, the page
forbids itself to run or load anything.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from datetime import date, datetime
from pathlib import Path
from uuid import uuid4

from tampu.lake.insights.clustering import Cluster
from tampu.lake.insights.findings import Insights, SloLine
from tampu.lake.insights.forecast import AT_USE, Drain, HourOfWeek
from tampu.lake.report import charts
from tampu.lake.report.charts import Curve, Show, compact, escape, percent, seconds
from tampu.lake.report.style import STYLE

DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_TONES = ("blue", "violet", "green", "amber", "red", "grey")
_MOST_ROWS = 50
_MOST_CURVES = 6


def write(insights: Insights, to: str | os.PathLike[str]) -> Path:
    """Write the report; the file is there whole, or as it was."""
    target = Path(to)
    part = target.with_name(f".{target.name}.{uuid4().hex[:12]}.part")
    try:
        part.write_text(page(insights), encoding="utf-8")
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)
    return target


def page(insights: Insights) -> str:
    """The whole report."""
    of = f"tenant {escape(insights.tenant)}" if insights.tenant else "all tenants"
    period = f"{insights.since:%d %b %Y} to {insights.until:%d %b %Y %H:%M} UTC"
    sections = (
        [_cards(insights), _series(insights), _queues(insights),
         _failures(insights), _slo(insights), _week(insights), _tasks(insights), _workers(insights), _tenants(insights),
         _own(insights)]
        if not insights.empty or insights.failures or insights.tenants
        else ['<p class="none">The lake is empty. Run <code>tampu pipeline run --once</code>, then ask again.</p>']
    )  # fmt: skip
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f'<meta name="color-scheme" content="light dark"><title>tampu insights, {escape(period)}</title>'
        f"<style>{STYLE}</style></head><body><header><h1>tampu insights</h1>"
        f"<p>{escape(period)} · {of} · <code>{escape(insights.lake)}</code></p></header>"
        f"<main>{''.join(sections)}</main></body></html>\n"
    )


def _section(title: str, about: str, *parts: str) -> str:
    return f"<section><h2>{escape(title)}</h2><p>{escape(about)}</p>{''.join(parts)}</section>"


def table(names: Sequence[str], rows: Iterable[Sequence[str]], *, right: Sequence[str] = (), caption: str) -> str:
    """A table of cells that are HTML already."""
    side = [' class="n"' if name in right else "" for name in names]
    head = "".join(f'<th scope="col"{c}>{escape(name)}</th>' for name, c in zip(names, side, strict=True))
    body = "".join(
        f"<tr>{''.join(f'<td{c}>{cell}</td>' for cell, c in zip(row, side, strict=True))}</tr>" for row in rows
    )
    return (
        f'<div class="scroll" tabindex="0"><table><caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _cards(insights: Insights) -> str:
    t = insights.totals
    cards = [
        ("handed in", compact(t.published), f"{t.published:,} messages", ""),
        ("done", compact(t.done), f"{t.done:,} messages", ""),
        ("failed attempts", percent(t.failure_ratio), f"{t.failed:,} attempts", "warn" if t.failed else ""),
        ("dead", compact(t.dead), f"{t.dead:,} messages gave up", "bad" if t.dead else ""),
        ("waiting now", compact(t.depth), f"in {t.queues:,} queue{'' if t.queues == 1 else 's'}", ""),
        ("wait, p95", seconds(t.wait_p95), "before a worker took it", ""),
        ("run, p95", seconds(t.run_p95), f"{seconds(t.run_seconds)} of work in all", ""),
    ]
    made = "".join(
        f'<li class="{tone}"><span>{escape(name)}</span><b>{escape(value)}</b><small>{escape(more)}</small></li>'
        for name, value, more, tone in cards
    )
    return f'<ul class="cards">{made}</ul>'


def _series(insights: Insights) -> str:
    s, step = insights.series, f"per {seconds(insights.series.step)}"
    return "".join((
        _charted(
            "flow", "Throughput", s.at,
            f"Messages handed in and done, {step}: {sum(s.published):,} in, {sum(s.done):,} done.",
            [Curve("handed in", s.published, "blue"), Curve("done", s.done, "green", "area")],
        ),
        _charted(
            "bad", "Failures", s.at,
            f"Attempts that failed and messages that gave up, {step}: {sum(s.failed):,} and {sum(s.dead):,}.",
            [Curve("failed attempts", s.failed, "amber", "column"), Curve("dead", s.dead, "red")],
        ),
        _charted(
            "wait", "Waiting time", s.at,
            f"How long messages were ready before a worker took them: half, 95 % and 99 % waited less, {step}.",
            [
                Curve("p99", s.wait_p99, "red"), Curve("p95", s.wait_p95, "amber"),
                Curve("p50", s.wait_p50, "blue", "area"),
            ],
            show=seconds, exact=seconds,
        ),
        _charted(
            "depth", "Depth", s.at,
            f"Messages ready and not yet taken, over all queues. At the end {insights.totals.depth:,}.",
            [Curve("ready", s.depth, "violet", "area")],
        ),
    ))  # fmt: skip


def _charted(
    name: str,
    title: str,
    at: Sequence[datetime],
    about: str,
    curves: Sequence[Curve],
    *,
    show: Show = compact,
    exact: Show = "{:,}".format,
) -> str:
    """A chart, with its values as a table for readers who cannot see it or want them exactly."""
    rows = [[f"{moment:%d %b %H:%M}", *(exact(c.values[n]) for c in curves)] for n, moment in enumerate(at)]
    names = [c.name for c in curves]
    numbers = table(["time (UTC)", *names], rows, right=names, caption=f"{title}, in numbers")
    return _section(title, about, charts.over_time(name, title, about, at, curves, show=show), _details(numbers))


def _details(numbers: str) -> str:
    return f"<details><summary>In numbers</summary>{numbers}</details>"


def outlook(found: Drain) -> str:
    """A forecast in a few words."""
    if found.outlook == "empty":
        return "-"
    if found.outlook == "grows":
        return f"grows by {compact((found.in_rate - found.out_rate) * 60)}/min"
    if found.outlook == "stands" or found.seconds is None:
        return "stands still"
    if found.latest is None:
        return f"{seconds(found.seconds)} or never"
    low, high = seconds(found.soonest), seconds(found.latest)
    return seconds(found.seconds) if low == high else f"{seconds(found.seconds)} ({low} to {high})"


def _name(insights: Insights, tenant: str, name: str) -> str:
    return f"<small>{escape(tenant)} / </small>{escape(name)}" if insights.several_tenants else escape(name)


def _queues(insights: Insights) -> str:
    right = ("in", "out", "dead", "failed", "wait p95", "run p95", "waiting", "oldest")
    rows = [
        [
            f"<b>{_name(insights, q.tenant, q.queue)}</b>",
            charts.tiny(q.published_by_step, f"messages handed in to {q.queue}"),
            f"{q.published:,}",
            f"{q.ended:,}",
            f'<span class="bad">{q.dead:,}</span>' if q.dead else "0",
            percent(q.failure_ratio),
            seconds(q.wait_p95),
            seconds(q.run_p95),
            f"{q.depth:,}",
            seconds(q.oldest),
            f'<span class="{"bad" if q.drain.outlook == "grows" else ""}">{escape(outlook(q.drain))}</span>',
        ]
        for q in insights.queues[:_MOST_ROWS]
    ]
    names = ["queue", "arrivals", "in", "out", "dead", "failed", "wait p95", "run p95", "waiting", "oldest", "empty in"]
    about = "Empty in: when nothing waits any more if all goes on as in the last 15 minutes (5 minutes to an hour)."
    return _section("Queues", about, table(names, rows, right=right, caption="Queues, the busiest first"))


def _failures(insights: Insights) -> str:
    if not insights.failures:
        return _section("What fails", "Nothing failed in these days.")
    rows = [_failure(insights, f) for f in insights.failures[:_MOST_ROWS]]
    about = "Failures that look alike are one line. Look at one with: tampu show ID."
    made = table(["error", "queues", "dead", "attempts", "messages", "last", "samples"], rows,
                 right=("dead", "attempts", "messages"), caption="Failures, the deadliest first")  # fmt: skip
    return _section("What fails", about, made)


def _failure(insights: Insights, f: Cluster) -> list[str]:
    text = f.error if len(f.error) <= 400 else f.error[:399] + "…"
    queues = ", ".join(_name(insights, f.tenant, name) for name in f.queues[:5])
    more = f" and {len(f.queues) - 5} more" if len(f.queues) > 5 else ""
    samples = "".join(f"<li><code>{escape(id)}</code></li>" for id in f.sample_ids)
    return [
        f'<code class="error">{escape(text) or "no text"}</code>', queues + more, f"{f.dead:,}", f"{f.attempts:,}",
        f"{f.messages:,}", f"{f.last_at:%d %b %H:%M}" if f.last_at else "-", f'<ul class="ids">{samples}</ul>',
    ]  # fmt: skip


def _slo(insights: Insights) -> str:
    if not insights.slo:
        return ""
    days = sorted({day for line in insights.slo for day, _ in line.days})
    curves = []
    for line, tone in zip(insights.slo[:_MOST_CURVES], _TONES, strict=False):
        burnt: dict[date, float | None] = dict(line.days)
        curves.append(Curve(_objective(insights, line), [burnt.get(day) for day in days], tone))
    at = [datetime(day.year, day.month, day.day) for day in days]  # noqa: DTZ001 - only its date is drawn
    about = "Share of the error budget that each day burnt. Above 1 the budget does not last."
    rows = [
        [
            escape(_objective(insights, line)), percent(line.target), f"{line.total:,}", percent(line.ratio),
            f'<span class="{"bad" if line.missed else "good"}">{_burn(line.burn)}</span>',
        ]
        for line in insights.slo[:_MOST_ROWS]
    ]  # fmt: skip
    names = ["objective", "target", "messages", "good", "burn"]
    return _section(
        "Objectives",
        about,
        charts.over_time("slo", "Budget burnt", about, at, curves, show=_burn, mark=(1.0, "budget")),
        table(names, rows, right=names[1:], caption="Objectives over these days, the worst first"),
    )


def _burn(value: float | int | None) -> str:
    return "-" if value is None else f"{value:.2f}" if value < 100 else compact(value)


def _objective(insights: Insights, line: SloLine) -> str:
    owner = f"{line.tenant} / " if insights.several_tenants else ""
    within = f" within {seconds(line.within)}" if line.within is not None else ""
    return f"{owner}{line.queue}: {line.objective}{within}"


def _week(insights: Insights) -> str:
    if not insights.week:
        return ""
    most = max(cell.p95 for cell in insights.week)
    cells = {(c.weekday, c.hour): c for c in insights.week}
    about = (
        "Arrivals in each hour of the week (UTC), over up to four weeks; dark is busy. "
        f"Workers are what the busiest 5 % of such hours need, each at work {AT_USE:.0%} of the time."
    )
    hours = "".join(f"<span>{hour:02d}</span>" for hour in range(0, 24, 3))
    names = "".join(f"<span>{day[:2]}</span>" for day in DAYS)
    shapes = [_cell(cells.get((day, hour)), day, hour, most) for day in range(7) for hour in range(24)]
    drawing = charts.svg("week", "Hours of the week", about, 960, 280, shapes)
    picture = (
        f'<div class="chart week"><div class="scale" aria-hidden="true">{names}</div><div class="plot">{drawing}</div>'
        f'<div class="times" aria-hidden="true">{hours}</div></div>'
    )
    busiest = sorted(insights.week, key=lambda c: (-c.p95, c.weekday, c.hour))
    columns = ["hour", "median", "p95", "work", "workers"]
    made = table(columns, [_hour(c) for c in busiest[:10]], right=columns[1:], caption="The ten busiest hours")
    every = table(columns, [_hour(c) for c in insights.week], right=columns[1:], caption="Every hour of the week")
    return _section("Busiest hours", about, picture, made, _details(every))


def _cell(cell: HourOfWeek | None, day: int, hour: int, most: float) -> str:
    share = cell.p95 / most if cell is not None and most else 0.0
    shown = (
        "never seen"
        if cell is None
        else f"median {compact(cell.median)}, p95 {compact(cell.p95)}, {_workers_word(cell)}"
    )
    return (
        f'<rect class="cell" x="{hour * 40 + 1}" y="{day * 40 + 1}" width="38" height="38" rx="3"'
        f' fill-opacity="{0.06 + 0.94 * share:.3f}"><title>{DAYS[day]} {hour:02d}:00, {shown}</title></rect>'
    )


def _workers_word(cell: HourOfWeek) -> str:
    return f"{cell.workers:,} worker{'' if cell.workers == 1 else 's'}"


def _hour(cell: HourOfWeek) -> list[str]:
    return [
        f"{DAYS[cell.weekday]} {cell.hour:02d}:00", compact(cell.median), compact(cell.p95), seconds(cell.run_seconds),
        f"{cell.workers:,}",
    ]  # fmt: skip


def _tasks(insights: Insights) -> str:
    rows = [
        [
            f"<b>{escape(t.type)}</b>", _name(insights, t.tenant, t.queue), f"{t.deliveries:,}", f"{t.failed:,}",
            f"{t.dead:,}", seconds(t.run_p50), seconds(t.run_p95), seconds(t.run_p99),
        ]
        for t in insights.tasks[:_MOST_ROWS]
    ]  # fmt: skip
    names = ["type", "queue", "deliveries", "failed", "dead", "run p50", "run p95", "run p99"]
    about = "How long each type of message ran."
    return _section("Slowest tasks", about, table(names, rows, right=names[2:], caption="Types, the slowest first"))


def _workers(insights: Insights) -> str:
    rows = [
        [
            f"<b>{_name(insights, w.tenant, w.worker)}</b>", f"{w.deliveries:,}", f"{w.done:,}", f"{w.failed:,}",
            f"{w.lost:,}", seconds(w.run_seconds), seconds(w.run_p95), f"{w.last_at:%d %b %H:%M}" if w.last_at else "-",
        ]
        for w in insights.workers[:_MOST_ROWS]
    ]  # fmt: skip
    names = ["worker", "deliveries", "done", "failed", "lost", "busy", "run p95", "last seen"]
    about = "Lost: leases that ran out, because the worker died or was too slow."
    return _section("Workers", about, table(names, rows, right=names[1:], caption="Workers, the busiest first"))


def _tenants(insights: Insights) -> str:
    if not insights.several_tenants:
        return ""
    rows = [
        [
            f"<b>{escape(t.tenant)}</b>", f"{t.published:,}", f"{t.deliveries:,}", f"{t.done:,}", f"{t.dead:,}",
            seconds(t.run_seconds), f"{compact(t.payload_bytes)}B",
        ]
        for t in insights.tenants[:_MOST_ROWS]
    ]  # fmt: skip
    names = ["tenant", "in", "deliveries", "done", "dead", "busy", "payloads"]
    return _section("Tenants", "What each used.", table(names, rows, right=names[1:], caption="Tenants, by messages"))


def _own(insights: Insights) -> str:
    if not insights.own:
        return ""
    names = ["table", "about", "rows", "newest day"]
    rows = [[f"<b>{escape(o.table)}</b>", escape(o.about), f"{o.rows:,}", str(o.newest or "-")] for o in insights.own]
    about = "Built with the others; ask them with tampu sql."
    return _section("Your own tables", about, table(names, rows, right=names[2:], caption="Your own tables"))
