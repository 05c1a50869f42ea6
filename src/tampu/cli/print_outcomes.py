"""Prints the outcomes of commands that change several messages, and why a queue delivers nothing."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import typer

import tampu
from tampu.cli import documents, exits, output
from tampu.cli.session import Session
from tampu.model.similar import did_you_mean

MISSING = "missing"


def answer(
    session: Session, outcomes: Sequence[tampu.Outcome], receipts: Sequence[str] | None = None, **more: Any
) -> None:
    """Print the outcome of each message, and exit with the matching code.

    ``receipts`` name the messages if they were given by receipt.
    """
    if len(outcomes) == 1 and outcomes[0].error is not None:
        raise outcomes[0].error
    names: Sequence[str | None] = receipts or [outcome.id for outcome in outcomes]
    if session.json:
        given = [{}] * len(outcomes) if receipts is None else [{"receipt": receipt} for receipt in receipts]
        rows = [{**name, **documents.outcome(outcome)} for name, outcome in zip(given, outcomes, strict=True)]
        session.out.document({**more, "outcomes": rows})
    else:
        for name, outcome in zip(names, outcomes, strict=True):
            print_outcome(session, name, outcome)
    raise typer.Exit(exits.of_outcomes(list(outcomes)))


def print_outcome(session: Session, name: str | None, outcome: tampu.Outcome) -> None:
    if outcome.error is None:
        session.out.line(f"{outcome.id}  {outcome.state}", output.STYLES.get(str(outcome.state), ""))
    else:
        session.out.line(f"{name}  {outcome.error.code}: {outcome.error.message}", "red")


def status_of(store: tampu.Store, queue: str) -> str | None:
    """The status of a queue; None if the key may not read it."""
    try:
        found: tampu.Stats = store.stats(queue)
        return found.status
    except tampu.NotFound:
        return MISSING
    except tampu.Forbidden:
        return None


def similar(store: tampu.Store, queue: str) -> str:
    """The end of a remark about a queue that does not exist: which one was probably meant. Empty if it exists."""
    with contextlib.suppress(tampu.TampuError):  # a key that may not list queues
        known = store.queues.list()
        return "" if queue in known else did_you_mean(queue, known)
    return ""


def note_status(session: Session, queue: str, status: str | None, like: str = "") -> None:
    """Print why the queue delivers nothing, if that is known."""
    if status == MISSING:
        session.out.note(f"queue {queue} does not exist yet{like}")
    elif status in ("paused", "closed"):
        session.out.note(f"{queue} is {status}; deliver again with: {session.command_line('resume', queue)}")
