"""`copy`: move a whole house from one store to another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

import tampu
from tampu.broker.transfer import Move, Report, TransferOptions, reopen
from tampu.cli import output, parse
from tampu.cli.app import DryRun, command
from tampu.cli.output import count, text
from tampu.cli.session import Session
from tampu.model.message import State
from tampu.store_factory import make_engine

if TYPE_CHECKING:
    from rich.table import Table


@command("copy", "Steer")
def copy(
    session: Session,
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="The url or file to move from")],
    target: Annotated[
        str | None, typer.Argument(metavar="TARGET", help="The url or file to move to; made if it is not there")
    ] = None,
    ended: Annotated[bool, typer.Option("--ended", help="Messages that have ended too")] = False,
    into_existing: Annotated[
        bool, typer.Option("--into-existing", help="The target may have messages of its own")
    ] = False,
    wait: Annotated[str, typer.Option("--wait", metavar="TIME", help="How long to wait for leases to end")] = "30s",
    force: Annotated[
        bool, typer.Option("--force", help="Take messages from workers that have them; leave readers that are behind")
    ] = False,
    give_up: Annotated[
        bool, typer.Option("--reopen", help="Give a move up: open the queues of SOURCE again, as they were")
    ] = False,
    dry_run: DryRun = False,
) -> None:
    """Move a house: all tenants, queues, settings and messages that have not ended, in order and with their ids.

    The queues of SOURCE are closed first and stay closed; its messages stay too. TARGET opens when everything has
    arrived. Killed at any moment, the same command goes on.
    """
    if session.tenant is not None or session.url is not None:
        raise tampu.InvalidMessage("copy moves all tenants, and names both stores itself", field="url")
    here = Session(url=source, tenant=None, json=session.json)
    here.check_there()
    if give_up:
        _reopen(here, force=force)
        return
    if target is None:
        raise tampu.InvalidMessage("name the target", field="target", hint="tampu copy SOURCE TARGET")
    there = Session(url=target, tenant=None, json=session.json)
    options = TransferOptions(ended, into_existing, force, parse.duration(wait, "wait"))
    engine = make_engine(here.store)
    try:
        # A dry run leaves no trace: the target is not even opened.
        goal = engine if dry_run else make_engine(there.store)
        try:
            move = Move(engine, goal, options, origin=here.shown, goal=there.shown)
            report = move.look()
            if not dry_run:
                with output.progress("moving", report.total) as advance:
                    report = move.run(lambda _queue, n: advance(n))
        finally:
            if goal is not engine:
                goal.close()
    finally:
        engine.close()
    _tell(session, report, here.shown, there.shown)


def _reopen(here: Session, *, force: bool) -> None:
    engine = make_engine(here.store)
    try:
        queues = reopen(engine, force=force)
    finally:
        engine.close()
    if here.json:
        here.out.document({"reopened": queues})
    else:
        here.out.say(f"{here.shown} is open again, as it was")


def _tell(session: Session, report: Report, source: str, target: str) -> None:
    if session.json:
        session.out.document(_document(report, source, target))
        return
    if report.queues:
        session.out.show(_table(report))
    for note in report.notes:
        session.out.note(note)
    if report.dry_run:
        session.out.say(f"{report.total:,} messages and {report.documents:,} documents would move")
    elif not report.was_done:
        session.out.say(
            f"{source} has moved to {target}: {report.total:,} messages, {report.stored:,} of them by this run"
        )
        session.out.note(f"{source} is closed and has all it had; point workers and publishers to the new url")


def _document(report: Report, source: str, target: str) -> dict[str, Any]:
    return {
        "source": source,
        "target": target,
        "dry_run": report.dry_run,
        "was_done": report.was_done,
        "messages": report.total,
        "stored": report.stored,
        "documents": report.documents,
        "idempotency_keys": report.requests,
        "readers": report.readers,
        "queues": [
            {"tenant": q.tenant, "queue": q.queue, "source": q.source, "target": q.target} for q in report.queues
        ],
        "notes": report.notes,
    }


def _table(report: Report) -> Table:
    states = [s for s in State if any(s in q.source or s in (q.target or {}) for q in report.queues)]
    rows = []
    for q in report.queues:
        for side, counts in (("source", q.source), ("target", q.target)):
            if counts is not None:
                first = side == "source"
                rows.append(
                    [
                        text(q.tenant if first else ""),
                        text(q.queue if first else "", "bold"),
                        text(side, "dim"),
                        *(count(counts.get(s, 0), output.STYLES[s]) for s in states),
                    ]
                )
    return output.table(["tenant", "queue", "", *states], rows, right=[str(s) for s in states])
