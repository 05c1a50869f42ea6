"""`tampu erase` and `tampu erasure`: remove all messages of a subject, and the reports of it."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

import tampu
from tampu.cli import exits, streams
from tampu.cli.app import DryRun, command, group, option
from tampu.cli.session import Session

_PANEL = "Policies"
erasure = group("erasure", _PANEL, "Reports of tampu erase")
Id = Annotated[str, typer.Argument(metavar="ID", help="Id of the erasure")]


@command("erase", _PANEL)
def erase(
    session: Session,
    label: Annotated[str | None, option("--label", "Messages with this label", metavar="NAME=VALUE")] = None,
    key: Annotated[str | None, option("--key", "Messages with this key", metavar="KEY")] = None,
    correlation: Annotated[
        str | None, option("--correlation-id", "Messages with this correlation id", metavar="ID")
    ] = None,
    path: Annotated[
        str | None, option("--path", "Messages with this value, such as payload.user.id=42", metavar="PATH=VALUE")
    ] = None,
    dry_run: DryRun = False,
    yes: Annotated[bool, option("--yes", "-y", "Do not ask")] = False,
) -> None:
    """Remove all messages of a subject for good, in every queue and state, with their history and results.

    The lake is another place: see tampu pipeline erase --erasure.
    """
    label_pair, path_pair = _pair(label, "label"), _pair(path, "path")
    with session.open() as store:
        found = store.erase(label=label_pair, key=key, correlation_id=correlation, path=path_pair, dry_run=True)
        if not dry_run:
            if not yes:
                count = len(found.ids) + len(found.leased)
                streams.confirm(f"remove {count:,} messages for good?", "this cannot be undone")
            found = store.erase(label=label_pair, key=key, correlation_id=correlation, path=path_pair)
    _print(session, found)


def _pair(text: str | None, field: str) -> tuple[str, str] | None:
    if text is None:
        return None
    name, equals, value = text.partition("=")
    if not equals:
        raise tampu.InvalidMessage(f"{field} is NAME=VALUE", field=field)
    return name, value


@command("list", _PANEL, of=erasure)
def list_all(session: Session) -> None:
    """List all erasures."""
    with session.open() as store:
        found = store.erasures.list()
    rows = ([one.id, one.status, str(len(one.ids)), one.started_at.isoformat()] for one in found)
    document = {"erasures": [msgspec.to_builtins(one) for one in found]}
    session.out.rows(document, ["erasure", "status", "removed", "started"], rows, right=["removed"])


@command("show", _PANEL, of=erasure)
def show(session: Session, id: Id) -> None:
    """Show the report of an erasure."""
    with session.open() as store:
        found = store.erasures.get(id)
    _print(session, found)


@command("check", _PANEL, of=erasure)
def check(session: Session, id: Id) -> None:
    """Look for messages of the subject again. The exit code is 1 if there are some."""
    with session.open() as store:
        found = store.erasures.check(id)
    _print(session, found)
    if found.ids or found.leased or found.held or found.schedules:
        raise typer.Exit(exits.FAILED)


def _print(session: Session, found: tampu.Erasure) -> None:
    if session.json:
        session.out.document(msgspec.to_builtins(found))
        return
    verb = "there are" if found.dry_run else "removed"
    session.out.line(f"{verb} {len(found.ids):,} messages" + (f", erasure {found.id}" if found.id else ""))
    for queue, states in found.removed.items():
        session.out.line(f"    {queue}: " + ", ".join(f"{count:,} {state}" for state, count in states.items()))
    if found.schedules:
        session.out.line(
            f"schedules that {'would be' if found.dry_run else 'were'} deleted: {', '.join(found.schedules)}"
        )
    if found.leased:
        session.out.line(f"{len(found.leased):,} are leased: they go when their workers are done", "yellow")
    for name, ids in found.held.items():
        session.out.line(f"{len(ids):,} stay: legal hold {name}", "yellow")
