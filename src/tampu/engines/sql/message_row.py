"""A message as the operations carry it from one table to another."""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID


class MessageRow(NamedTuple):
    """What a transition must know of a message; statements answer with these columns first."""

    seq: int
    q: int
    attempts: int
    stamp: int
    own: UUID | None
    group: bytes | None
    rank: int
    max_attempts: int
    expires: int | None
    named: bool
    """It has a key."""


Waiting = tuple[MessageRow, int | None, int | None]
"""A message, when it is to run, and the lease that brought it here."""
