"""FairRanks of groups, in queues with the ordering `fair`: the ranks that one commit gives.

A queue goes round: rank 7 is the seventh round, and each group has one message in it. A message that becomes ready
goes into the round that is being delivered or, if its group is in that already, into the one after the last that its
group is in. So a group with a million messages waiting takes as many rounds, and who comes with ten is in the next ten.
This is start-time fair queueing with messages of one size.

The round that is being delivered is that of the first ready message; when none is ready, one that has not been yet, for
all alike. A group that is behind it has nothing to remember, so what is kept does not grow with the groups there ever
were. What waits in delayed or held is in no round: it gets its turn when it becomes ready.
"""

from __future__ import annotations

import copy
from typing import Generic, Self, TypeVar

L = TypeVar("L", str, bytes)
FORGOTTEN = 2
"""Groups that are forgotten for each that is noted, if there are so many behind the round."""


class FairRanks(Generic[L]):
    def __init__(self) -> None:
        self.rounds: dict[int, int] = {}
        """The round that is being delivered, by queue."""
        self.last: dict[tuple[int, L], int] = {}
        """The last round a group is in."""
        self.changed: dict[tuple[int, L], None] = {}

    def begin(self, q: int, first: int | None, last: int | None) -> None:
        """Where a queue is: the rank of its first ready message, and the last round that any group is in."""
        self.rounds[q] = max(1, (last or 0) + 1 if first is None else first)

    def take(self, q: int, group: L) -> int:
        """The rank of the next message of a group. Its queue's round and its last one are known."""
        place = (q, group)
        self.last[place] = max(self.rounds[q], self.last.get(place, 0) + 1)
        self.changed[place] = None
        return self.last[place]

    def copy(self) -> Self:
        made = copy.copy(self)
        made.rounds, made.last, made.changed = dict(self.rounds), dict(self.last), dict(self.changed)
        return made
