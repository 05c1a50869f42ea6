"""Draws a picture of a store: queues, workers and failures, as tables of plain text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tampu.cli import output
from tampu.cli.output import count, text, word
from tampu.cli.top.overview import Picture, Worker
from tampu.cli.top.rates import KINDS
from tampu.model.states import State

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

_STATES = (State.READY, State.DELAYED, State.LEASED, State.HELD, State.DEAD)
_MOST_WORK = 20
"""Messages at work that are shown."""


def draw(picture: Picture, url: str, problem: str | None = None) -> Group:
    """``problem``: why the picture is old, if the store does not answer."""
    from rich.console import Group

    parts: list[Any] = [_head(picture, url, problem), text(""), _queues(picture)]
    if picture.workers:
        parts.append(_workers(picture.workers))
    if picture.failures:
        parts.append(_failures(picture))
    return Group(*parts)


def _head(picture: Picture, url: str, problem: str | None) -> Text:
    waiting, dead = sum(s.depth for s in picture.stats), sum(s.dead for s in picture.stats)
    running = sum(s.leased for s in picture.stats)
    line = text(f"{url}  ", "bold") + text(f"{picture.at.astimezone():%H:%M:%S}  ", "dim")
    queues = "1 queue" if len(picture.stats) == 1 else f"{len(picture.stats)} queues"
    line += text(f"{queues} · {waiting:,} waiting · {running:,} at work · {dead:,} dead")
    return line if problem is None else line + text(f"\n{problem}", "bold red")


def _queues(picture: Picture) -> Table:
    rows = []
    for s in picture.stats:
        rate = picture.rate(s.queue)
        rates = ["" if rate is None else _per_second(rate[kind]) for kind in KINDS]
        age = "-" if s.oldest_ready_age is None else output.span(s.oldest_ready_age.total_seconds())
        counts = [count(s.counts.get(state, 0), output.STYLES[state]) for state in _STATES]
        rows.append([text(s.queue, "bold"), word(s.status), *counts, age, *rates])
    rates = [f"{kind}/s" for kind in KINDS]
    columns = ["queue", "status", *_STATES, "oldest", *rates]
    return output.table(columns, rows, fold=("queue",), right=(*_STATES, "oldest", *rates))


def _per_second(rate: float) -> str:
    if rate < 0.01:
        return "<0.01" if rate else "·"
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:.2f}"


def _workers(workers: list[Worker]) -> Table:
    def rows() -> Iterator[list[Any]]:
        for one in workers:
            for work in one.running:
                since = output.ago(work.started_at).removesuffix(" ago")
                done = output.share(work.progress)
                yield [one.worker or "-", work.queue, work.type, f"{work.attempt}", since, done, work.id]

    shown = sorted(rows(), key=lambda row: str(row[0]))[:_MOST_WORK]
    columns = ["worker", "queue", "runs", "attempt", "for", "progress", "id"]
    title = f"{len(workers)} workers at work" if len(workers) != 1 else "1 worker at work"
    return output.table(
        columns, shown, fold=("worker", "queue", "runs", "progress"), right=("attempt", "for"), title=title
    )


def _failures(picture: Picture) -> Table:
    rows = [
        [f"{f.at.astimezone():%H:%M:%S}", f.queue, word(f.state or "removed"), f.attempt, text(f.error, "red"), f.id]
        for f in picture.failures
    ]
    columns = ["failed", "queue", "now", "attempt", "error", "id"]
    return output.table(columns, rows, fold=("queue", "error"), right=("attempt",), title="latest failures")
