"""`doctor`: checks the store. It prints a report also if the file is missing, damaged or not a tampu store."""

from __future__ import annotations

import typer

import tampu
from tampu.broker.admin.checks import Finding
from tampu.cli import exits, output
from tampu.cli.app import command
from tampu.cli.output import text, word
from tampu.cli.session import Session
from tampu.engines.sqlite.checks import folder


def examine(session: Session) -> list[Finding]:
    """The findings of `Store.check`; if the store cannot be opened, why not."""
    try:
        with session.open() as store:
            return store.check()
    except (tampu.InvalidConfig, tampu.InvalidMessage):
        raise
    except tampu.TampuError as error:
        hint = f"; {error.hint}" if error.hint else ""
        failed: Finding = ("open", "bad", f"{error.code}: {error.message}{hint}")
        return [failed] if session.path is None else [folder(session.path), failed]


@command("doctor", "Maintain")
def doctor(session: Session) -> None:
    """Check file, schema, durability, disk space and clock, and say what to do. Exit code 1 if a check is bad."""
    found = examine(session)
    worst = max((level for _, level, _ in found), key=("ok", "warn", "bad").index)
    if session.json:
        rows = [{"what": what, "level": level, "note": detail} for what, level, detail in found]
        session.out.document({"store": session.shown, "level": worst, "checks": rows})
    else:
        from rich.table import Table

        grid = Table.grid(padding=(0, 2))
        grid.add_column(no_wrap=True)
        grid.add_column(no_wrap=True)
        grid.add_column(overflow="fold")
        session.out.line(f"{session.shown}\n", "bold")
        for what, level, detail in found:
            grid.add_row(word(level), text(what, "bold"), text(detail))
        session.out.show(grid)
        summary = {"ok": "all checks passed", "warn": "works, with warnings", "bad": "problems found"}[worst]
        session.out.line(f"\n{summary}", output.STYLES[worst])
    if worst == "bad":
        raise typer.Exit(exits.FAILED)
