"""The terminal view of `tampu insights`: headline, sparklines, tables, and a heat map of the week."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tampu.cli import output
from tampu.cli.output import Output, count, text
from tampu.lake.insights.findings import Insights
from tampu.lake.insights.forecast import AT_USE
from tampu.lake.report.charts import bar, compact, percent, seconds, sparkline
from tampu.lake.report.html import DAYS, outlook

if TYPE_CHECKING:
    from rich.text import Text

_LINES = 10
_SHADES = " ░▒▓█"
_SPARK = 24
_LABEL = 18


def show(out: Output, found: Insights) -> None:
    """Print everything, most urgent first."""
    of = f", tenant {found.tenant}" if found.tenant else ""
    out.line(f"{found.since:%d %b %Y} to {found.until:%d %b %Y %H:%M} UTC{of}", "bold")
    if found.empty:
        out.line("the lake has no data yet: first run tampu pipeline run --once")
        return
    _headline(out, found)
    _lines(out, found)
    _queues(out, found)
    _failures(out, found)
    _tasks(out, found)
    _workers(out, found)
    _slo(out, found)
    _week(out, found)
    _own(out, found)


def _headline(out: Output, found: Insights) -> None:
    t = found.totals
    out.line(
        f"{compact(t.published)} in · {compact(t.done)} done · {percent(t.failure_ratio)} of attempts failed · "
        f"{compact(t.dead)} dead · {compact(t.depth)} waiting in {t.queues:,} queue{'' if t.queues == 1 else 's'} · "
        f"p95 wait {seconds(t.wait_p95)}, run {seconds(t.run_p95)}"
    )


def _lines(out: Output, found: Insights) -> None:
    s = found.series
    columns = max(10, min(output.width() - _LABEL - 20, len(s.at) or 1))
    out.line(f"\nper {seconds(s.step)}, up to {s.at[-1]:%d %b %H:%M} UTC" if s.at else "", "dim")
    for name, values, style, most in (
        ("in", s.published, "blue", compact(max(s.published, default=0))),
        ("done", s.done, "green", compact(max(s.done, default=0))),
        ("failed attempts", s.failed, "yellow", compact(max(s.failed, default=0))),
        ("waiting", s.depth, "magenta", compact(max(s.depth, default=0))),
        ("wait p95", s.wait_p95, "cyan", seconds(max((w for w in s.wait_p95 if w is not None), default=None))),
    ):
        line = text(f"{name:<{_LABEL}}") + text(sparkline(values, columns), style) + text(f"  max {most}", "dim")
        out.show(line)


def _owner(found: Insights, tenant: str, name: str) -> Text:
    return (text(f"{tenant} / ", "dim") if found.several_tenants else text("")) + text(name, "bold")


def _listed(
    out: Output,
    title: str,
    what: str,
    names: Sequence[str],
    rows: Sequence[Sequence[Text]],
    *,
    fold: Sequence[str],
    right: Sequence[str],
) -> None:
    """The first rows as a table, if there are any."""
    if rows:
        out.show(output.table(names, rows[:_LINES], fold=fold, right=right, title=f"\n{title}"))
    if len(rows) > _LINES:
        out.line(f"and {len(rows) - _LINES:,} more {what}: see --json or --html", "dim")


def _queues(out: Output, found: Insights) -> None:
    rows = [
        [
            _owner(found, q.tenant, q.queue), text(sparkline(q.published_by_step, _SPARK), "blue"), count(q.published),
            count(q.ended), count(q.dead, "red"), text(percent(q.failure_ratio)), text(seconds(q.wait_p95)),
            text(seconds(q.run_p95)), count(q.depth), text(seconds(q.oldest)),
            text(outlook(q.drain), "red" if q.drain.outlook == "grows" else ""),
        ]
        for q in found.queues
    ]  # fmt: skip
    names = ["queue", "arrivals", "in", "out", "dead", "failed", "wait p95", "run p95", "waiting", "oldest", "empty in"]
    _listed(out, "Queues", "queues", names, rows, fold=("arrivals", "empty in"), right=names[2:10])


def _failures(out: Output, found: Insights) -> None:
    rows = [
        [
            count(f.dead, "red"), count(f.attempts), text(f"{f.last_at:%d %b %H:%M}" if f.last_at else "-"),
            text(", ".join(f.queues[:3]) + (" …" if len(f.queues) > 3 else "")),
            text(f.sample_ids[0] if f.sample_ids else "-"),
            text(" ".join(f.error.split()) or "no text"),
        ]
        for f in found.failures
    ]  # fmt: skip
    names = ("dead", "attempts", "last", "queues", "sample", "error")
    _listed(out, "What fails", "failures", names, rows, fold=("queues", "error"), right=names[:2])


def _tasks(out: Output, found: Insights) -> None:
    most = max((t.run_p95 or 0.0 for t in found.tasks), default=0.0)
    rows = [
        [
            text(t.type, "bold"), _owner(found, t.tenant, t.queue), count(t.deliveries), count(t.failed, "yellow"),
            text(seconds(t.run_p50)), text(seconds(t.run_p95)), text(seconds(t.run_p99)),
            text(bar(t.run_p95 or 0.0, most, 20), "cyan"),
        ]
        for t in found.tasks
    ]  # fmt: skip
    names = ["type", "queue", "deliveries", "failed", "run p50", "run p95", "run p99", ""]
    _listed(out, "Slowest tasks", "types", names, rows, fold=("",), right=names[2:7])


def _workers(out: Output, found: Insights) -> None:
    rows = [
        [
            _owner(found, w.tenant, w.worker), count(w.deliveries), count(w.done), count(w.failed, "yellow"),
            count(w.lost, "red"), text(seconds(w.run_seconds)), text(seconds(w.run_p95)),
            text(f"{w.last_at:%d %b %H:%M}" if w.last_at else "-"),
        ]
        for w in found.workers
    ]  # fmt: skip
    names = ["worker", "deliveries", "done", "failed", "lost", "busy", "run p95", "last seen"]
    _listed(out, "Workers", "workers", names, rows, fold=("worker",), right=names[1:7])


def _slo(out: Output, found: Insights) -> None:
    rows = []
    for line in found.slo:
        within = f" within {seconds(line.within)}" if line.within is not None else ""
        over = "red" if line.missed else "green"
        rows.append([
            _owner(found, line.tenant, line.queue), text(line.objective + within), text(percent(line.target)),
            text(percent(line.ratio)), text("-" if line.burn is None else f"{line.burn:.2f}", over),
            text(sparkline([burn for _, burn in line.days], _SPARK), over),
        ])  # fmt: skip
    names = ["queue", "objective", "target", "good", "burn", "by day"]
    title = "Objectives (burn above 1: too much)"
    _listed(out, title, "objectives", names, rows, fold=("by day",), right=names[2:5])


def _week(out: Output, found: Insights) -> None:
    most = max((cell.p95 for cell in found.week), default=0.0)
    if not most:
        return
    cells = {(c.weekday, c.hour): c for c in found.week}
    out.line("\nBusiest hours (UTC)", "bold")
    out.line("    " + "".join(f"{hour:02d}    " for hour in range(0, 24, 3)), "dim")
    for day, name in enumerate(DAYS):
        shades = ""
        for hour in range(24):
            cell = cells.get((day, hour))
            shades += 2 * _SHADES[0 if cell is None or not cell.p95 else 1 + min(3, int(cell.p95 / most * 4))]
        out.show(text(f"{name[:2]}  ", "dim") + text(shades, "blue"))
    busiest = max(found.week, key=lambda c: (c.p95, -c.weekday, -c.hour))
    out.line(
        f"busiest: {DAYS[busiest.weekday]} {busiest.hour:02d}:00 with {compact(busiest.p95)} messages, "
        f"{seconds(busiest.run_seconds)} of work: {busiest.workers:,} "
        f"worker{'' if busiest.workers == 1 else 's'} at {AT_USE:.0%} use"
    )


def _own(out: Output, found: Insights) -> None:
    rows = [[text(o.table, "bold"), text(o.about), count(o.rows), text(str(o.newest or "-"))] for o in found.own]
    names = ["table", "about", "rows", "newest day"]
    if rows:
        out.show(output.table(names, rows, fold=("about",), right=names[2:3], title="\nYour own tables"))
