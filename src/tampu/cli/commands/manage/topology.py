"""`tampu apply`, `tampu diff` and `tampu export-topology`: all that is configured, as one file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

import tampu
from tampu.cli import exits, output
from tampu.cli.app import DryRun, command, option
from tampu.cli.session import Session
from tampu.model.extras import install

_PANEL = "Policies"
_MOST_BYTES = 1 << 20
_SIGNS = {"create": ("+", "green"), "change": ("~", "yellow"), "delete": ("-", "red")}
File = Annotated[str | None, typer.Argument(metavar="FILE", help="YAML or JSON; - is standard input")]
Prune = Annotated[bool, option("--prune", "Remove what the sections of the file do not have")]


@command("apply", _PANEL)
def apply(
    session: Session,
    file: File = None,
    dry_run: DryRun = False,
    prune: Prune = False,
    schema: Annotated[bool, option("--schema", "Print the JSON Schema of such files, for editors, and exit")] = False,
) -> None:
    """Make the store as a file says: queues, schemas, rules, subscriptions, schedules, grants; as one unit.

    What is so already stays untouched. A mistake is named with its line, and then nothing is changed.
    """
    if schema:
        from tampu.broker.topology.verbs import topology_schema

        sys.stdout.write(msgspec.json.format(msgspec.json.encode(topology_schema()), indent=2).decode() + "\n")
        return
    name, text = _read(file)

    def act(store: tampu.Store) -> tampu.Applied:
        return store.topology.apply(text, dry_run=dry_run, prune=prune, file=name)

    with session.open_or_create(act) if not dry_run else session.open() as store:
        _print(session, act(store))


@command("diff", _PANEL)
def diff(session: Session, file: File = None, prune: Prune = False) -> None:
    """Show what `tampu apply` would change. The exit code is 1 if that is something, as with diff."""
    name, text = _read(file)
    with session.open() as store:
        found = store.topology.apply(text, dry_run=True, prune=prune, file=name)
    _print(session, found)
    if found.changes:
        raise typer.Exit(exits.FAILED)


@command("export-topology", _PANEL)
def export(session: Session) -> None:
    """Print all that is configured as a topology file: YAML, or JSON with --json. It has no secrets."""
    with session.open() as store:
        found = store.topology.export()
    if session.json:
        session.out.document(found)
        return
    try:
        import yaml  # type: ignore[import-untyped]  # it has no types
    except ImportError:
        raise tampu.InvalidConfig("YAML needs PyYAML", hint=f"use --json, or {install('policies')}") from None
    sys.stdout.write(yaml.safe_dump(found, sort_keys=False, allow_unicode=True) if found else "{}\n")


def _read(file: str | None) -> tuple[str, bytes]:
    """The name of a file in errors, and its content."""
    if file is None:
        raise tampu.InvalidConfig("name a file", field="file", hint="tampu apply topology.yaml; - is standard input")
    try:
        with Path(file).open("rb") if file != "-" else sys.stdin.buffer as stream:
            raw = stream.read(_MOST_BYTES + 1)
    except OSError as error:
        raise tampu.InvalidConfig(f"cannot read {file}: {error.strerror}", field="file") from None
    return "standard input" if file == "-" else file, raw


def _print(session: Session, applied: tampu.Applied) -> None:
    if session.json:
        session.out.document(msgspec.to_builtins(applied))
        return
    for change in applied.changes:
        sign, style = _SIGNS[change.action]
        session.out.line(f"{sign} {change.section}.{change.name}", style)
        for line in _fields(change.before or {}, change.after or {}):
            session.out.line(f"    {line}", "dim")
    count = len(applied.changes)
    would = "would be " if applied.dry_run else ""
    session.out.note(f"{count} {'change' if count == 1 else 'changes'} {would}made" if count else "no changes")


def _fields(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    found = []
    for field in before | after:
        old, new = before.get(field), after.get(field)
        if field not in before:
            found.append(f"{field}: {output.short(new)}")
        elif after and old != new:
            found.append(f"{field}: {output.short(old)} → {output.short(new)}")
    return found
