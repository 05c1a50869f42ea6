"""The part of a message that verbs need to move it between tables."""

from __future__ import annotations

from typing import NamedTuple


class MessageRow(NamedTuple):
    """What a transition needs to know of a message. Statements return these columns first."""

    seq: int
    q: int
    attempts: int
    stamp: int
    own: bytes | None
    """The id, if the user gave it."""
    group: bytes | None
    rank: int
    max_attempts: int
    expires: int | None
    named: bool
    """It has a key."""


Waiting = tuple[MessageRow, int | None, int | None]
"""(message, run_at, settle marker): a message about to become ready or delayed."""
Held = tuple[MessageRow, int | None, int | None, bytes | None, bytes]
"""(message, run_at, settle marker, the group it waits for, reason): a message about to be held."""
