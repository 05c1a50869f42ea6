"""Notes on why a queue delivers nothing: it is paused, closed or does not exist."""

from __future__ import annotations

import tampu
from tampu.cli.session import Session

MISSING = "missing"


def status_of(store: tampu.Store, queue: str) -> str | None:
    """The status of a queue; None if the key may not read it."""
    try:
        found: tampu.Stats = store.stats(queue)
        return found.status
    except tampu.NotFound:
        return MISSING
    except tampu.Forbidden:
        return None


def note(session: Session, queue: str, status: str | None) -> None:
    """Print why the queue delivers nothing, if that is known."""
    if status == MISSING:
        session.out.note(f"queue {queue} does not exist yet")
    elif status in ("paused", "closed"):
        session.out.note(f"{queue} is {status}; deliver again with: {session.command_line('resume', queue)}")
