"""`copy`: moves everything from one store to another."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Annotated, Any

import typer

import tampu
from tampu.broker.transfer import Move, Report, TransferOptions, reopen
from tampu.cli import output, parse
from tampu.cli.app import DryRun, command, option
from tampu.cli.output import count, text
from tampu.cli.session import Session
from tampu.model.message import State
from tampu.store_factory import make_engine

if TYPE_CHECKING:
    from rich.table import Table


@command("copy", "Manage")
def copy(
    session: Session,
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="Url or file to move from")],
    target: Annotated[
        str | None, typer.Argument(metavar="TARGET", help="Url or file to move to; created if it does not exist")
    ] = None,
    ended: Annotated[bool, option("--ended", "Also move ended messages")] = False,
    into_existing: Annotated[bool, option("--into-existing", "Allow a target that has messages")] = False,
    wait: Annotated[str, option("--wait", "How long to wait for leases to end", metavar="TIME")] = "30s",
    force: Annotated[
        bool, option("--force", "Move leased messages too, and ignore journal readers that are behind")
    ] = False,
    give_up: Annotated[bool, option("--reopen", "Give up a move: reopen the queues of SOURCE as they were")] = False,
    dry_run: DryRun = False,
) -> None:
    """Move a store: all tenants, queues, settings and live messages, in order and with their ids.

    The queues of SOURCE are closed first and stay closed; its messages stay too. TARGET opens when everything has
    arrived. If it is killed, run the same command again to continue.
    """
    if session.tenant is not None or session.url is not None:
        raise tampu.InvalidMessage(
            "copy takes neither --url nor --tenant: it moves all tenants", field="url", hint="tampu copy SOURCE TARGET"
        )
    source_session = Session(url=source, tenant=None, json=session.json)
    source_session.check_exists()
    if give_up:
        _reopen(source_session, force=force)
        return
    if target is None:
        raise tampu.InvalidMessage("the target is missing", field="target", hint="tampu copy SOURCE TARGET")
    target_session = Session(url=target, tenant=None, json=session.json)
    options = TransferOptions(ended, into_existing, force, parse.duration(wait, "wait"))
    with contextlib.ExitStack() as stack:
        engine = goal = stack.enter_context(contextlib.closing(make_engine(source_session.store)))
        if not dry_run:  # a dry run does not even open the target
            goal = stack.enter_context(contextlib.closing(make_engine(target_session.store)))
        move = Move(engine, goal, options, origin=source_session.shown, goal=target_session.shown)
        report = move.preview()
        if not dry_run:
            with output.progress("moving", report.total) as advance:
                report = move.run(lambda _queue, n: advance(n))
    _print(session, report, source_session.shown, target_session.shown)


def _reopen(source_session: Session, *, force: bool) -> None:
    with contextlib.closing(make_engine(source_session.store)) as engine:
        queues = reopen(engine, force=force)
    line = f"the queues of {source_session.shown} are open again, as they were"
    source_session.out.answer({"reopened": queues}, line)


def _print(session: Session, report: Report, source: str, target: str) -> None:
    if session.json:
        session.out.document(_document(report, source, target))
        return
    if report.queues:
        session.out.show(_table(report))
    for note in report.notes:
        session.out.note(note)
    if report.dry_run:
        session.out.line(f"{report.total:,} messages and {report.documents:,} documents would move")
    elif not report.was_done:
        session.out.line(
            f"{source} has moved to {target}: {report.total:,} messages, {report.stored:,} of them by this run"
        )
        session.out.note(f"{source} is closed and keeps its messages; point workers and publishers to the new url")


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
                tenant, queue = (q.tenant, q.queue) if side == "source" else ("", "")
                found = [count(counts.get(s, 0), output.STYLES[s]) for s in states]
                rows.append([tenant, text(queue, "bold"), text(side, "dim"), *found])
    return output.table(["tenant", "queue", "", *states], rows, right=[str(s) for s in states])
