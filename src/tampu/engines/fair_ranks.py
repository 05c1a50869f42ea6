"""The ranks of messages in queues with the ordering `fair`.

A queue is delivered in rounds. The rank is the round, and each group has at most one message in a round. A message that
becomes ready goes into the current round or, if its group is in that already, into the round after the last one of its
group. So a group with a million waiting messages takes a million rounds, and a new group with ten messages is in the
next ten. This is start-time fair queueing with messages of equal size.

The current round is the rank of the first ready message; if none is ready, a new round. A group whose last round has
passed need not be stored, so the table does not grow with the number of groups there ever were. Delayed and held
messages have no round: they get one when they become ready.
"""

from __future__ import annotations

import copy
from typing import Generic, Self, TypeVar

L = TypeVar("L", str, bytes)
FORGOTTEN = 2
"""For each group that is stored, up to this many whose last round has passed are deleted."""


class FairRanks(Generic[L]):
    """The ranks that one commit gives."""

    def __init__(self) -> None:
        self.rounds: dict[int, int] = {}
        """The current round, by queue."""
        self.last: dict[tuple[int, L], int] = {}
        """The last round of each group."""
        self.changed: dict[tuple[int, L], None] = {}

    def begin(self, q: int, first: int | None, last: int | None) -> None:
        """Set the round of a queue from the rank of its first ready message and the last round of any group."""
        self.rounds[q] = max(1, (last or 0) + 1 if first is None else first)

    def take(self, q: int, group: L) -> int:
        """The rank of the next message of a group. `rounds` and `last` must be filled for it."""
        key = (q, group)
        self.last[key] = max(self.rounds[q], self.last.get(key, 0) + 1)
        self.changed[key] = None
        return self.last[key]

    def copy(self) -> Self:
        made = copy.copy(self)
        made.rounds, made.last, made.changed = dict(self.rounds), dict(self.last), dict(self.changed)
        return made
