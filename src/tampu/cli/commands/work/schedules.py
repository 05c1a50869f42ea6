"""`tampu schedule`: add, list, show, pause, resume, remove and fire schedules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer

import tampu
from tampu.cli import documents, output, parse
from tampu.cli.app import command, group, queue_names
from tampu.cli.commands.work.publish import read_payload
from tampu.cli.session import Session

_PANEL = "Work"
_WHEN = "When"
schedule = group("schedule", _PANEL, "Publish by cron or interval")

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the schedule")]


@command("add", _PANEL, of=schedule)
def add(
    session: Session,
    name: Name,
    queue: Annotated[
        str, typer.Option("--queue", metavar="QUEUE", help="The queue to publish to", autocompletion=queue_names)
    ],
    payload: Annotated[str | None, typer.Argument(help="JSON, or - for standard input", show_default=False)] = None,
    text: Annotated[bool, typer.Option("--text", help="The payload is text, not JSON")] = False,
    file: Annotated[str | None, typer.Option("--file", metavar="PATH", help="Read the payload from a file")] = None,
    content_type: Annotated[
        str | None, typer.Option("--content-type", metavar="TYPE", help="Send the bytes unchanged, with this type")
    ] = None,
    type: Annotated[str | None, typer.Option("--type", metavar="NAME", help="Type, a dotted name: email.send")] = None,
    priority: Annotated[int, typer.Option("--priority", help="Higher goes first in a priority queue")] = 0,
    max_attempts: Annotated[int | None, typer.Option("--max-attempts", help="Maximum deliveries")] = None,
    label: Annotated[list[str] | None, typer.Option("--label", metavar="K=V", help="A label; repeatable")] = None,
    header: Annotated[list[str] | None, typer.Option("--header", metavar="K=V", help="A header; repeatable")] = None,
    ttl: Annotated[str | None, typer.Option("--ttl", metavar="TIME", help="Expire if it waits longer")] = None,
    key: Annotated[str | None, typer.Option("--key", help="A run replaces the waiting message with this key")] = None,
    group: Annotated[str | None, typer.Option("--group", help="Group, for order or limits within it")] = None,
    cron: Annotated[
        str | None, typer.Option("--cron", metavar="EXPR", help="For example '*/5 * * * *'", rich_help_panel=_WHEN)
    ] = None,
    tz: Annotated[
        str, typer.Option("--tz", metavar="ZONE", help="Time zone of --cron: Europe/Rome", rich_help_panel=_WHEN)
    ] = "UTC",
    every: Annotated[
        str | None, typer.Option("--every", metavar="TIME", help="Interval: 30s, 5m, 1h30m", rich_help_panel=_WHEN)
    ] = None,
    start: Annotated[
        str | None, typer.Option("--start", metavar="ISO", help="No run before this time", rich_help_panel=_WHEN)
    ] = None,
    end: Annotated[
        str | None, typer.Option("--end", metavar="ISO", help="No run after this time", rich_help_panel=_WHEN)
    ] = None,
    limit: Annotated[int | None, typer.Option("--limit", help="Maximum number of runs", rich_help_panel=_WHEN)] = None,
    jitter: Annotated[
        str, typer.Option("--jitter", metavar="TIME", help="Random delay of each run", rich_help_panel=_WHEN)
    ] = "0",
    missed: Annotated[
        str,
        typer.Option("--missed", help="Missed runs: skip, once or all(n)", rich_help_panel=_WHEN),
    ] = "once",
    paused: Annotated[
        bool | None, typer.Option("--paused/--active", help="Default: unchanged", rich_help_panel=_WHEN)
    ] = None,
) -> None:
    """Create a schedule, or change the one with this name."""
    value: Any = None
    if payload is not None or file is not None:
        value, content_type = read_payload(payload, file, text=text, content_type=content_type)
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
    if session.json:
        session.out.document(documents.schedule(made))
        return
    when = {"active": f", next {output.ago(made.next)}", "paused": "", "ended": ""}[made.status]
    session.out.say(f"{made.name} is {made.status}{when}", output.STYLES.get(made.status, ""))


@command("list", _PANEL, of=schedule)
def list_schedules(session: Session) -> None:
    """List all schedules, with their last and next run."""
    with session.open() as store:
        found = store.schedules.list()
    if session.json:
        session.out.document({"schedules": [documents.schedule(one) for one in found]})
        return
    text = output.text
    rows = [
        [
            text(one.name),
            text(one.queue),
            text(_when(one)),
            output.word(one.status),
            output.count(one.fired),
            text(output.ago(one.last)),
            text(output.ago(one.next)),
            text(one.error or "", "red"),
        ]
        for one in found
    ]
    columns = ["schedule", "queue", "when", "status", "fired", "last", "next", "error"]
    session.out.show(output.table(columns, rows, fold=["error"], right=["fired"]))


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


def _change(session: Session, name: str, act: Callable[[Any, str], tampu.Schedule]) -> None:
    with session.open() as store:
        changed = act(store.schedules, name)
    _print(session, changed)


@command("pause", _PANEL, of=schedule)
def pause(session: Session, name: Name) -> None:
    """Pause a schedule. Runs that fall into the pause are not made up for."""
    _change(session, name, lambda schedules, one: schedules.pause(one))


@command("resume", _PANEL, of=schedule)
def resume(session: Session, name: Name) -> None:
    """Resume a paused schedule, from now on."""
    _change(session, name, lambda schedules, one: schedules.resume(one))


@command("remove", _PANEL, of=schedule)
def remove(session: Session, name: Name) -> None:
    """Remove a schedule. Messages that it has published stay."""
    with session.open() as store:
        store.schedules.get(name)
        store.schedules.delete(name)
    if session.json:
        session.out.document({"name": name, "removed": True})
    else:
        session.out.say(f"{name} removed")


@command("fire", _PANEL, of=schedule)
def fire(session: Session, name: Name) -> None:
    """Publish its message now, in addition to its regular runs."""
    with session.open() as store:
        message = store.schedules.fire(name)
    if session.json:
        session.out.document(documents.message(message))
    else:
        session.out.say(f"{message.id}  {message.queue}: {message.state}")
