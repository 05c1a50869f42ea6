"""Why a queue delivers nothing: it is shut, or not there."""

from __future__ import annotations

import tampu
from tampu.cli.session import Session

MISSING = "missing"


def standing(store: tampu.Store, queue: str) -> str | None:
    """The status of a queue; None for a key that may work but not look."""
    try:
        found: tampu.Stats = store.stats(queue)
        return found.status
    except tampu.NotFound:
        return MISSING
    except tampu.Forbidden:
        return None


def note(session: Session, queue: str, status: str | None) -> None:
    """What people should know of it."""
    if status == MISSING:
        session.out.note(f"there is no queue {queue} yet")
    elif status in ("paused", "closed"):
        session.out.note(f"{queue} is {status}: nothing is delivered until {session.call('resume', queue)}")
