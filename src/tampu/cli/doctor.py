"""`doctor`: is the store sound? It answers with a report also when the file is missing, foreign or damaged."""

from __future__ import annotations

import os
from typing import Any

import typer

import tampu
from tampu.broker import access, readers
from tampu.cli import exits, output
from tampu.cli.app import command
from tampu.cli.output import text, word
from tampu.cli.session import Session

Finding = tuple[str, str, str]


def examine(session: Session) -> list[Finding]:
    """(what, ok | warn | bad, what to know)"""
    found: list[Finding] = [("store", "ok", session.shown)]
    path = session.path
    if path is not None:
        found.append(_folder(path.absolute().parent))
    try:
        with session.open() as q:
            found += q.check()
            found += _states(q)
            if not session.remote:  # a server tells of them itself
                found += readers.findings(access.engine(q))
    except (tampu.InvalidConfig, tampu.InvalidMessage):
        raise
    except tampu.TampuError as error:
        hint = f"; {error.hint}" if error.hint else ""
        found.append(("open", "bad", f"{error.code}: {error.message}{hint}"))
    return found


def _folder(folder: Any) -> Finding:
    if not folder.is_dir():
        return ("folder", "bad", f"{folder} does not exist; make it first")
    if not os.access(folder, os.W_OK):
        return ("folder", "bad", f"no permission to write in {folder}: SQLite keeps its log beside the file")
    return ("folder", "ok", f"{folder} can be written")


def _states(q: tampu.Queue) -> list[Finding]:
    """Queues that somebody may have forgotten to open again, and dead letters that wait for a decision."""
    found: list[Finding] = []
    rows = q.stats()
    shut = [f"{s.queue} ({s.status})" for s in rows if s.status != "open"]
    dead = [f"{s.queue} ({s.dead:,})" for s in rows if s.dead]
    if shut:
        found.append(("queues", "warn", f"not open: {', '.join(shut[:10])}; open with tampu resume"))
    if dead:
        found.append(("dead", "warn", f"dead letters in {', '.join(dead[:10])}; see tampu list QUEUE --state dead"))
    return found


@command("doctor", "Care")
def doctor(session: Session) -> None:
    """Check file, schema, durability, space and clock, and say what to do. Exit code 1 if something is bad."""
    found = examine(session)
    worst = max((level for _, level, _ in found), key=("ok", "warn", "bad").index)
    if session.json:
        rows = [{"what": what, "level": level, "detail": detail} for what, level, detail in found]
        session.out.document({"level": worst, "findings": rows})
    else:
        from rich.table import Table

        grid = Table.grid(padding=(0, 2))
        grid.add_column(no_wrap=True)
        grid.add_column(no_wrap=True)
        grid.add_column(overflow="fold")
        for what, level, detail in found:
            grid.add_row(word(level), text(what, "bold"), text(detail))
        session.out.show(grid)
        summary = {"ok": "all is well", "warn": "works; see the warnings", "bad": "something is wrong"}[worst]
        session.out.say(f"\n{summary}", output.STYLES[worst])
    if worst == "bad":
        raise typer.Exit(exits.FAILED)
