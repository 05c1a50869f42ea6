"""`tampu schedule`: add, list, show, pause, resume, remove and fire schedules."""

from __future__ import annotations

from typing import Annotated, Any

import typer

import tampu
from tampu.cli import documents, output, parse
from tampu.cli.app import command, group, option, queue_names
from tampu.cli.commands.work import publish
from tampu.cli.session import Session

_PANEL = "Work"
_WHEN = "When"
schedule = group("schedule", _PANEL, "Publish by cron or interval")

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the schedule")]


@command("add", _PANEL, of=schedule)
def add(
    session: Session,
    name: Name,
    queue: Annotated[str, option("--queue", "The queue to publish to", metavar="QUEUE", autocompletion=queue_names)],
    payload: publish.Payload = None,
    text: publish.Text = False,
    file: publish.File = None,
    content_type: publish.ContentType = None,
    type: publish.Type = None,
    priority: publish.Priority = 0,
    max_attempts: publish.MaxAttempts = None,
    label: publish.Labels = None,
    header: publish.Headers = None,
    ttl: Annotated[str | None, option("--ttl", "Expire if it waits longer", metavar="TIME")] = None,
    key: Annotated[str | None, option("--key", "A run replaces the waiting message with this key")] = None,
    group: Annotated[str | None, option("--group", "Group, for order or limits within it")] = None,
    cron: Annotated[str | None, option("--cron", "For example '*/5 * * * *'", metavar="EXPR", panel=_WHEN)] = None,
    tz: Annotated[str, option("--tz", "Time zone of --cron: Europe/Rome", metavar="ZONE", panel=_WHEN)] = "UTC",
    every: Annotated[str | None, option("--every", "Interval: 30s, 5m, 1h30m", metavar="TIME", panel=_WHEN)] = None,
    start: Annotated[str | None, option("--start", "No run before this time", metavar="ISO", panel=_WHEN)] = None,
    end: Annotated[str | None, option("--end", "No run after this time", metavar="ISO", panel=_WHEN)] = None,
    limit: Annotated[int | None, option("--limit", "Maximum number of runs", panel=_WHEN)] = None,
    jitter: Annotated[str, option("--jitter", "Random delay of each run", metavar="TIME", panel=_WHEN)] = "0",
    missed: Annotated[str, option("--missed", "Missed runs: skip, once or all(n)", panel=_WHEN)] = "once",
    paused: Annotated[bool | None, option("--paused/--active", "Default: unchanged", panel=_WHEN)] = None,
) -> None:
    """Create a schedule, or change the one with this name."""
    value: Any = None
    if payload is not None or file is not None:
        value, content_type = publish.read_payload(payload, file, text=text, content_type=content_type)
    terms: dict[str, Any] = {
        "queue": queue,
        "payload": value,
        "content_type": content_type,
        "type": type,
        "priority": priority,
        "max_attempts": max_attempts,
        "labels": parse.pairs(label, "label"),
        "headers": parse.pairs(header, "header"),
        "ttl": parse.optional_duration(ttl, "ttl"),
        "key": key,
        "group": group,
        "cron": cron,
        "tz": tz,
        "every": parse.optional_duration(every, "every"),
        "start": parse.moment(start, "start"),
        "end": parse.moment(end, "end"),
        "limit": limit,
        "jitter": parse.duration(jitter, "jitter"),
        "missed": missed,
        "paused": paused,
    }

    def act(store: tampu.Store) -> tampu.Schedule:
        return store.schedules.put(name, **terms)

    with session.open_or_create(act) as store:
        made = act(store)
    _print(session, made)


def _print(session: Session, made: tampu.Schedule) -> None:
    when = {"active": f", next {output.ago(made.next)}", "paused": "", "ended": ""}[made.status]
    style = output.STYLES.get(made.status, "")
    session.out.answer(documents.schedule(made), f"{made.name} is {made.status}{when}", style)


@command("list", _PANEL, of=schedule)
def list_schedules(session: Session) -> None:
    """List all schedules, with their last and next run."""
    with session.open() as store:
        found = store.schedules.list()
    rows = (
        [
            one.name, one.queue, _when(one), output.word(one.status), output.count(one.fired), output.ago(one.last),
            output.ago(one.next), output.text(one.error, "red"),
        ]
        for one in found
    )  # fmt: skip
    columns = ["schedule", "queue", "when", "status", "fired", "last", "next", "error"]
    document = {"schedules": [documents.schedule(one) for one in found]}
    session.out.rows(document, columns, rows, fold=["error"], right=["fired"])


def _when(one: tampu.Schedule) -> str:
    if one.every is not None:
        return f"every {output.span(one.every.total_seconds())}"
    return f"{one.cron}" if one.tz == "UTC" else f"{one.cron} {one.tz}"


@command("show", _PANEL, of=schedule)
def show(session: Session, name: Name) -> None:
    """Show one schedule, with its message."""
    with session.open() as store:
        found = store.schedules.get(name)
    if session.json:
        session.out.document(documents.schedule(found))
    else:
        shown = {key: value for key, value in documents.schedule(found).items() if value is not None}
        session.out.show(output.pretty(shown))


@command("pause", _PANEL, of=schedule)
def pause(session: Session, name: Name) -> None:
    """Pause a schedule. Runs that fall into the pause are not made up for."""
    with session.open() as store:
        _print(session, store.schedules.pause(name))


@command("resume", _PANEL, of=schedule)
def resume(session: Session, name: Name) -> None:
    """Resume a paused schedule, from now on."""
    with session.open() as store:
        _print(session, store.schedules.resume(name))


@command("remove", _PANEL, of=schedule)
def remove(session: Session, name: Name) -> None:
    """Remove a schedule. Messages that it has published stay."""
    with session.open() as store:
        store.schedules.get(name)
        store.schedules.delete(name)
    session.out.answer({"name": name, "deleted": True}, f"{name} removed")


@command("fire", _PANEL, of=schedule)
def fire(session: Session, name: Name) -> None:
    """Publish its message now, in addition to its regular runs."""
    with session.open() as store:
        message = store.schedules.fire(name)
    session.out.answer(documents.message(message), f"{message.id}  {message.queue}: {message.state}")
