"""Commands that only read: `peek list stats queues`."""

from __future__ import annotations

import contextlib
import re
import threading
from datetime import UTC, datetime
from pathlib import PurePath
from typing import TYPE_CHECKING, Annotated

import typer

import tampu
from tampu.cli import documents, exits, output, parse, print_outcomes
from tampu.cli.app import STATES, QueueName, command, option, queue_names
from tampu.cli.output import count, text, word
from tampu.cli.session import Session
from tampu.cli.wakeup import Wakeup
from tampu.worker.logs.user_frames import user_frames

if TYPE_CHECKING:
    from rich.table import Table

Where = Annotated[
    list[str] | None,
    option(
        "--where",
        "type, reason, error (part of its text), key, group, correlation_id, label.NAME, "
        "created_after, created_before, ended_after, ended_before; repeatable, all must match",
        metavar="FIELD=VALUE",
    ),
]


_LIMITS = ("max_depth", "max_in_flight", "group_concurrency", "group_rate", "rate")
_WIDE = 100
_SOONEST = 0.05
"""Minimum between two refreshes, however many wake-ups there are."""
_MOST_DETAILED = 100
_DETAILED = (tampu.State.LEASED, tampu.State.DEAD)
_FRAME = re.compile(r'  File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<name>\S+)')
_RARE = (tampu.State.HELD, tampu.State.CANCELLED, tampu.State.EXPIRED)


def message_table(messages: list[tampu.Message], *, states: bool = True) -> Table:
    """Messages, one per line."""
    ranked = any(m.priority for m in messages)
    columns = [
        "id",
        *["state"] * states,
        "type",
        "attempts",
        *["prio"] * ranked,
        "when",
        "progress",
        "error",
        "raised at",
    ]
    rows = []
    for m in messages:
        found = documents.payload(m)
        value = m.raw if "payload_base64" in found else found["payload"]
        row = [m.id, *[word(m.state)] * states, m.type, f"{m.attempts}/{m.max_attempts}"]
        dead = m.state == tampu.State.DEAD
        error, place = (m.last_error, _place(m)) if dead else (None, None)
        row += [*[count(m.priority)] * ranked, _when(m), output.share(m.progress), text(error, "red"), place]
        rows.append([*row, output.short(value)])
    fold = ("type", "when", "progress", "error", "raised at", "payload")
    return output.table([*columns, "payload"], rows, fold=fold, right=("prio",))


def _place(m: tampu.Message) -> str | None:
    """Where the last failure was raised, in the code of the user: ``tasks.py:5 send``."""
    trace = m.failures[-1].traceback if m.failures else None
    frames = list(_FRAME.finditer(user_frames(trace))) if trace else []
    return f"{PurePath(frames[-1]['file']).name}:{frames[-1]['line']} {frames[-1]['name']}" if frames else None


def _with_details(store: tampu.Store, messages: list[tampu.Message]) -> list[tampu.Message]:
    """Leased messages with their progress, dead ones with their failures: a list alone does not have them."""
    if len(messages) > _MOST_DETAILED:
        return messages
    made = []
    for message in messages:
        found = message
        if message.state in _DETAILED:
            with contextlib.suppress(tampu.NotFound):  # it has been removed since
                found = store.get(message.id)
        made.append(found)
    return made


def _when(m: tampu.Message) -> str:
    if m.state == tampu.State.DELAYED:
        due = m.run_at is not None and m.run_at <= datetime.now(UTC)
        return "due now" if due else output.ago(m.run_at)
    if m.state == tampu.State.DEAD:
        return f"{output.ago(m.ended_at)}: {m.reason}"
    if m.state == tampu.State.HELD:
        return f"held: {m.reason}"
    if m.state == tampu.State.LEASED and m.started_at is not None:
        return f"{output.ago(m.started_at)} by {m.worker or '-'}, lease ends {output.ago(m.lease_until)}"
    return output.ago(m.ended_at or m.created_at)


@command("peek", "Inspect")
def peek(
    session: Session,
    queue: QueueName,
    limit: Annotated[int, option("--limit", "-n", "Maximum messages")] = 10,
) -> None:
    """Show the messages that would be delivered next, without claiming them. Exit code 3 if there are none.

    Messages whose delay has ended come last. The next claim puts them behind the ready ones of the same priority.
    """
    now = datetime.now(UTC)
    with session.open() as store:
        found = list(store.messages(queue, state=tampu.State.READY, limit=limit))
        due = store.messages(queue, state=tampu.State.DELAYED, limit=limit)
        status = store.stats(queue).status
    found += [m for m in due if m.run_at is not None and m.run_at <= now]
    found = [m for m in found if m.expires_at is None or m.expires_at > now][:limit]
    if session.json:
        session.out.document({"queue": queue, "status": status, "messages": [documents.message(m) for m in found]})
    elif found:
        session.out.show(message_table(found))
    else:
        session.out.note("no message to deliver")
    print_outcomes.note_status(session, queue, status)
    if not found:
        raise typer.Exit(exits.NOTHING)


@command("list", "Inspect")
def list_(
    session: Session,
    queue: QueueName,
    state: Annotated[tampu.State | None, option("--state", STATES, case_sensitive=False)] = None,
    limit: Annotated[int, option("--limit", "-n", "Maximum messages")] = 50,
    after: Annotated[str | None, option("--after", "Continue after a page", metavar="CURSOR")] = None,
    where: Where = None,
) -> None:
    """List the messages of a queue, page by page.

    Leased messages have their worker and progress, dead ones their error and where it was raised (up to 100 a page).
    """
    with session.open() as store:
        page = store.messages(queue, state=state, limit=limit, after=after, where=parse.where(where))
        messages = _with_details(store, page.messages)
    if session.json:
        shown = [documents.message(m) for m in messages]
        session.out.document({"queue": queue, "messages": shown, "cursor": page.cursor})
    elif messages:
        session.out.show(message_table(messages, states=state is None))
    else:
        session.out.note("no messages found")
    if page.cursor is not None:
        state_option = ["--state", state] if state else []
        chosen = [word for condition in where or [] for word in ("--where", condition)]
        session.out.note(f"more: {session.command_line('list', queue, *state_option, *chosen, '--after', page.cursor)}")


def stats_table(found: list[tampu.Stats]) -> Table:
    wide = output.width() >= _WIDE
    states = [s for s in tampu.State if wide or s not in _RARE or any(row.counts.get(s) for row in found)]
    rows = []
    for s in found:
        counts = [count(s.counts.get(state, 0), output.STYLES[state]) for state in states]
        age = "-" if s.oldest_ready_age is None else output.span(s.oldest_ready_age.total_seconds())
        rows.append([text(s.queue, "bold"), word(s.status), *counts, age])
    return output.table(["queue", "status", *states, "oldest"], rows, right=(*states, "oldest"))


@command("stats", "Inspect")
def stats(
    session: Session,
    queue: Annotated[
        str | None, typer.Argument(metavar="QUEUE", help="One queue (default: all)", autocompletion=queue_names)
    ] = None,
    watch: Annotated[bool, option("--watch", "-w", "Refresh until Ctrl-C")] = False,
    interval: Annotated[str, option("--interval", "Refresh at least this often", metavar="TIME")] = "1s",
    times: Annotated[int | None, option("--times", "Stop after this many refreshes", min=1)] = None,
) -> None:
    """Show counts by state, and the age of the oldest ready message."""
    seconds = max(0.05, parse.duration(interval, "interval"))
    with session.open() as store:
        if watch:
            _watch(session, store, queue, seconds, times)
            return
        found = _stats(store, queue)
    if session.json:
        session.out.document({"queues": [documents.stats(s) for s in found]})
    elif found:
        session.out.show(stats_table(found))
    else:
        session.out.note("there are no queues yet")


def _stats(store: tampu.Store, queue: str | None) -> list[tampu.Stats]:
    found = store.stats(queue)
    return [found] if isinstance(found, tampu.Stats) else list(found)


def _watch(session: Session, store: tampu.Store, queue: str | None, seconds: float, times: int | None) -> None:
    from rich.live import Live

    refreshes, wakeup, pause = 0, Wakeup(store), threading.Event()
    live = None if session.json else Live(console=session.out.console, auto_refresh=False)
    with live or store:
        while True:
            found = _stats(store, queue)
            if live is None:
                session.out.document({"queues": [documents.stats(s) for s in found]})
            else:
                live.update(stats_table(found), refresh=True)
            refreshes += 1
            if refreshes == times:
                return
            wakeup.wait(seconds)
            pause.wait(_SOONEST)


@command("queues", "Inspect")
def queues(session: Session) -> None:
    """List all queues, with their most important settings."""
    with session.open() as store:
        rows = [(s, store.queues.get(s.queue)) for s in _stats(store, None)]
    found = [
        {"queue": s.queue, "status": s.status, "depth": s.depth, "dead": s.dead, "config": documents.config(config)}
        for s, config in rows
    ]
    columns = ("queue", "status", "waiting", "dead", "ordering", "attempts", "lease", "limits")
    lines = (
        [
            text(s.queue, "bold"), word(s.status), count(s.depth), count(s.dead, "red"), config.ordering,
            config.max_attempts, output.span(config.lease or 0),
            ", ".join(f"{n} {getattr(config, n):g}" for n in _LIMITS if getattr(config, n)) or "-",
        ]
        for s, config in rows
    )  # fmt: skip
    right = ("waiting", "dead", "attempts", "lease")
    session.out.rows({"queues": found}, columns, lines, "there are no queues yet", fold=("limits",), right=right)
