"""`show`: all about one message, with its failures, its result and its history from the journal."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

import tampu
from tampu.cli import documents, journal_positions, output
from tampu.cli.app import command, option
from tampu.cli.output import text, word
from tampu.cli.session import Session
from tampu.model.journal import Position

if TYPE_CHECKING:
    from rich.table import Table

_PAGE = 5000
_SLACK = timedelta(minutes=1)
"""Clocks of several machines differ a little; journal times are only nearly in order."""


def timeline(store: tampu.Store, message: tampu.Message) -> list[tampu.Transition]:
    """The journal's transitions of a message. Reading starts where it was created and stops where it ended."""
    latest = store.journal(limit=1).latest
    position = _before(store, message, latest)
    found: list[tampu.Transition] = []
    left = journal_positions.behind(tampu.JournalPage([], position, latest))
    with output.progress("reading the journal", left) as advance:
        for page in journal_positions.pages(store, position, _PAGE):
            found.extend(t for t in page.transitions if t.id == message.id)
            advance(len(page.transitions))
            ended = message.ended_at is not None and page.transitions[-1:] and (
                page.transitions[-1].at > message.ended_at + _SLACK
            )  # fmt: skip
            if ended:
                break
    return found


def _before(store: tampu.Store, message: tampu.Message, latest: Position) -> Position:
    """A position before the message was created, by binary search: a partition is in order of time.

    If each queue has its own partition, only that one is read.
    """
    own = f"{message.tenant}/{message.queue}"
    start = dict(latest)
    for partition in [own] if own in latest else latest:
        low, high = 0, latest[partition]
        while high - low > _PAGE:
            middle = (low + high) // 2
            page = store.journal(after=latest | {partition: middle}, limit=1)
            if page.transitions and page.transitions[0].at < message.created_at - _SLACK:
                low = middle
            else:
                high = middle
        start[partition] = low
    return start


@command("show", "Inspect")
def show(
    session: Session,
    id: Annotated[str, typer.Argument(metavar="ID", help="Message id")],
    history: Annotated[bool, option("--history/--no-history", "With its journal entries")] = True,
) -> None:
    """Show one message: payload, failures with tracebacks, result, and history."""
    with session.open() as store:
        message = store.get(id)
        transitions = timeline(store, message) if history else []
    if session.json:
        session.out.document(
            {
                **documents.message(message),
                **documents.result(message),
                "history": [documents.transition(t) for t in transitions],
            }
        )
        return
    out = session.out
    out.show(_facts(message))
    _show_payload(session, message)
    if message.result_raw is not None:
        out.line("result", "bold")
        result = documents.result(message)
        out.show(output.pretty(result.get("result_base64", result["result"])))
    for failure in message.failures:
        who = f" by {failure.worker}" if failure.worker else ""
        out.line(f"attempt {failure.attempt}: {failure.outcome}{who}, {output.ago(failure.at)}", "bold red")
        out.line(failure.traceback or failure.error or "no error text")
    if transitions:
        out.line("\nhistory", "bold")
        out.show(_history(transitions))


def _facts(m: tampu.Message) -> Table:
    from rich.table import Table

    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim")
    grid.add_column(overflow="fold")
    reason = f" ({m.reason})" if m.reason else ""
    rows: list[tuple[str, Any]] = [
        ("id", text(m.id, "bold")),
        ("queue", m.queue if m.tenant == "default" else f"{m.queue} of tenant {m.tenant}"),
        ("state", word(m.state) + text(reason + (", cancel requested" if m.cancel_requested else ""))),
        ("type", m.type),
        ("attempts", f"{m.attempts} of {m.max_attempts}"),
        ("priority", m.priority or None),
    ]
    for name in ("created_at", "run_at", "deadline", "expires_at", "ended_at"):
        at = getattr(m, name)
        rows.append((name.removesuffix("_at"), at and f"{output.clock(at)}  ({output.ago(at)})"))
    if m.state == tampu.State.LEASED:
        rows += _holder(m)
    for name in ("key", "idempotency_key", "group", "correlation_id", "causation_id", "parent_id", "source"):
        rows.append((name, getattr(m, name)))
    for name in ("labels", "headers"):
        rows.append((name, ", ".join(f"{k}={v}" for k, v in getattr(m, name).items()) or None))
    for name, value in rows:
        if value is not None:
            grid.add_row(name, text(value) if isinstance(value, str | int) else value)
    return grid


def _holder(m: tampu.Message) -> list[tuple[str, Any]]:
    """Who works on it, since when, and how far that is."""
    times = [("started", m.started_at), ("updated", m.updated_at), ("lease until", m.lease_until)]
    seen = [(name, at and f"{output.clock(at)}  ({output.ago(at)})") for name, at in times]
    return [("worker", m.worker), *seen, ("progress", output.share(m.progress) or None)]


def _show_payload(session: Session, message: tampu.Message) -> None:
    found = documents.payload(message)
    session.out.line(f"\npayload  {message.content_type}, {len(message.raw):,} bytes", "bold")
    if "payload_base64" in found:
        session.out.line(found["payload_base64"])
        session.out.note(f"the payload is {documents.BASE64}")
    elif isinstance(found["payload"], str) and message.content_type.startswith("text/"):
        session.out.line(found["payload"])
    else:
        session.out.show(output.pretty(found["payload"]))
    session.out.line("")


def _history(transitions: list[tampu.Transition]) -> Table:
    rows = [
        [output.clock(t.at), t.verb, word(t.state or "removed"), t.attempt, t.worker, t.detail] for t in transitions
    ]
    columns = ("at", "verb", "state", "attempt", "worker", "detail")
    return output.table(columns, rows, fold=("worker", "detail"), right=("attempt",))
