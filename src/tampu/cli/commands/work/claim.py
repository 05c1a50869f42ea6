"""`claim`, the commands that settle what was claimed (`ack nack reject release`), and `extend`."""

from __future__ import annotations

import socket
from typing import Annotated, Any

import typer

import tampu
from tampu.cli import documents, exits, output, parse, print_outcomes
from tampu.cli.app import QueueNames, command, option
from tampu.cli.session import Session
from tampu.model.reasons import UNRECOVERABLE

Receipts = Annotated[list[str], typer.Argument(metavar="RECEIPT…", help="Receipts, as printed by claim")]
Error = Annotated[str | None, option("--error", "What went wrong", metavar="TEXT")]


@command("claim", "Work")
def claim(
    session: Session,
    queues: QueueNames,
    limit: Annotated[int, option("--limit", "-n", "Maximum messages")] = 1,
    lease: Annotated[str | None, option("--lease", "Lease time (default: the queue's)", metavar="TIME")] = None,
    wait: Annotated[str, option("--wait", "Wait this long for the first", metavar="TIME")] = "0s",
    worker: Annotated[str | None, option("--worker", "Worker (default: host)", metavar="NAME")] = None,
) -> None:
    """Claim messages, and print them with their receipts. Exit code 3 if there are none."""
    lease_seconds = parse.optional_duration(lease, "lease")
    wait_seconds = parse.duration(wait, "wait")
    with session.open() as store:
        leases = store.claim(
            queues, limit=limit, lease=lease_seconds, wait=wait_seconds, worker=worker or socket.gethostname()
        )
        empty = [] if leases else list(dict.fromkeys(queues))
        reasons = [(name, print_outcomes.status_of(store, name), print_outcomes.similar(store, name)) for name in empty]
    if session.json:
        session.out.document({"leases": [documents.lease(one) for one in leases]})
    else:
        for one in leases:
            _show(session, one)
        if leases:
            session.out.note(f"next: {session.command_line('ack')} RECEIPT, or nack, extend, release")
    if not leases:
        session.out.note("no message to deliver")
        for reason in reasons:
            print_outcomes.note_status(session, *reason)
        raise typer.Exit(exits.NOTHING)


def _show(session: Session, lease: tampu.Lease) -> None:
    message = lease.message
    out = session.out
    facts = f"{message.type} · attempt {lease.attempt} of {message.max_attempts} · lease ends {output.ago(lease.until)}"
    out.line(f"{message.queue}  {message.id}", "bold")
    out.line(facts, "dim")
    found = documents.payload(message)
    value = found.get("payload_base64", found["payload"])
    out.show(output.text(value) if isinstance(value, str) else output.pretty(value))
    if "payload_base64" in found:
        out.note(f"the payload is {documents.BASE64}")
    out.line(f"receipt {lease.receipt}\n", "cyan")


def _settle(session: Session, settlements: list[Any]) -> None:
    """Settle leases in one commit, and print the outcome of each."""
    with session.open() as store:
        outcomes = store.settle(settlements)
    print_outcomes.answer(session, outcomes, [settlement.lease for settlement in settlements])


@command("ack", "Work")
def ack(
    session: Session,
    receipts: Receipts,
    result: Annotated[
        str | None, option("--result", "Result; stored for the queue's result_ttl", metavar="JSON")
    ] = None,
) -> None:
    """Mark messages as done."""
    value = None if result is None else parse.json_value(result, "result", "quote text twice: '\"done\"'")
    _settle(session, [tampu.Ack(receipt, value) for receipt in receipts])


@command("nack", "Work")
def nack(
    session: Session,
    receipts: Receipts,
    error: Error = None,
    delay: Annotated[
        str | None, option("--delay", "Retry after this (default: the queue's backoff)", metavar="TIME")
    ] = None,
    traceback: Annotated[str | None, option("--traceback", "The traceback", metavar="TEXT")] = None,
) -> None:
    """Report a failure: retry later, or dead-letter after the last attempt."""
    seconds = parse.optional_duration(delay, "delay")
    _settle(session, [tampu.Nack(receipt, error, seconds, traceback) for receipt in receipts])


@command("reject", "Work")
def reject(
    session: Session,
    receipts: Receipts,
    reason: Annotated[str, option("--reason", "Why it can never succeed")] = UNRECOVERABLE,
    error: Error = None,
) -> None:
    """Dead-letter messages that can never succeed, without a retry."""
    _settle(session, [tampu.Reject(receipt, reason, error) for receipt in receipts])


@command("release", "Work")
def release(session: Session, receipts: Receipts) -> None:
    """Give messages back; the attempt does not count."""
    _settle(session, [tampu.Release(receipt) for receipt in receipts])


@command("extend", "Work")
def extend(
    session: Session,
    receipts: Receipts,
    by: Annotated[str | None, option("--by", "From now (default: the queue's)", metavar="TIME")] = None,
) -> None:
    """Extend leases."""
    seconds = parse.optional_duration(by, "by")
    outcomes = []
    with session.open() as store:
        for receipt in receipts:
            try:
                store.extend(receipt, seconds)
                outcomes.append(tampu.Outcome(None, tampu.State.LEASED))
            except tampu.TampuError as error:
                outcomes.append(tampu.Outcome(None, None, error))
    if len(outcomes) == 1 and outcomes[0].error is not None:
        raise outcomes[0].error
    if session.json:
        rows = [
            {"receipt": r, "extended": o.ok, "error": documents.outcome(o)["error"]}
            for r, o in zip(receipts, outcomes, strict=True)
        ]
        session.out.document({"outcomes": rows})
    else:
        for receipt, outcome in zip(receipts, outcomes, strict=True):
            session.out.line(f"{receipt}  {outcome.error.code if outcome.error else 'extended'}")
    raise typer.Exit(exits.of_outcomes(outcomes))
