"""The states of a message, and which of them are terminal. Defined only here."""

from __future__ import annotations

import enum


class State(enum.StrEnum):
    """The index a message is in."""

    READY = "ready"
    DELAYED = "delayed"
    LEASED = "leased"
    HELD = "held"
    DONE = "done"
    DEAD = "dead"
    CANCELLED = "cancelled"
    EXPIRED = "expired"


WAITING = (State.READY, State.DELAYED, State.HELD)
"""No worker has the message."""
LIVE = (State.READY, State.DELAYED, State.LEASED, State.HELD)
"""The message has not ended."""
TERMINAL = (State.DONE, State.DEAD, State.CANCELLED, State.EXPIRED)
"""The message has ended. A dead one can be replayed."""
FINAL = (State.DONE, State.CANCELLED, State.EXPIRED)
"""The terminal states that no verb leaves. Retention removes these messages."""


def has_ended(state: State | None) -> bool:
    """True for a terminal state, and for a message that was removed (None)."""
    return state is None or state in TERMINAL
