"""How many messages of a group may go at once: its places. What that means is the same in every engine.

A message of a group takes a place when it becomes ready and gives it back, in the same commit, when it ends or dies.
While all places are taken the others wait in `held`; who leaves lets the next ones go, in publish order. So no more of
a group can be leased than there are places, whatever becomes of workers, and claim looks at nothing of this.

With `ORDERED` a group has one place, and a message that will be tried again later keeps it: nobody overtakes. With a
number, whoever waits for its time (a delay, a retry) has no place; when the time comes it asks for one.

A group may also have a `GroupRate`: tokens come at a steady pace, up to a burst, and each delivery costs one. A message
that is ready has its token reserved, so claim need not check. It takes the token away, and in the same commit the next
message of the group that waits in `held` gets the time of its own token; until then it is in `delayed`.
With a group_rate alone, a place is left by being claimed; what comes back for another try asks for a token again.
"""

from __future__ import annotations

import math

import msgspec

ORDERED = 0
ANY = 1 << 30
"""So many that nobody waits for one."""
MOST_FREED = 100
"""Messages of a group that one leaving lets go; more only after a limit was raised or taken away."""


def stored(slots: int | None) -> int:
    """As an engine keeps it with the queue. No limit any more: what still waits for a place gets one."""
    return ANY if slots is None else slots


class GroupRate(msgspec.Struct, frozen=True):
    """A rate of deliveries for each group. Of a group a store keeps one time: when all it spent is saved up again."""

    us: int
    """A token comes every so many microseconds."""
    burst: int
    """So many are saved up at most."""

    def due(self, spent: int, now: int, place: int) -> int:
        """When there is a token for the message that is so many-th (from 1) among those that wait for theirs."""
        return max(spent, now) - (self.burst - place) * self.us

    def spend(self, spent: int, now: int, count: int = 1) -> int:
        """When all is saved up again, after so many deliveries now."""
        return max(spent, now) + count * self.us

    def most(self, now: int) -> int:
        """When the burst is full again if it is empty now. No stored time is later, whatever the rate was before."""
        return now + self.burst * self.us


_LONGEST = 10**15


def group_rate(rate: float, burst: int) -> GroupRate | None:
    """The rate for this many deliveries a second, rounded so that it is never exceeded; None if it is 0."""
    if not rate:
        return None
    us = min(math.ceil(1_000_000 / rate - 1e-6), _LONGEST)
    return GroupRate(us, min(burst or max(1, math.ceil(rate)), max(1, _LONGEST // us)))


class Limits(msgspec.Struct, frozen=True):
    """The limits of each group of a queue, as an engine keeps them."""

    slots: int = ORDERED
    group_rate: GroupRate | None = None

    @classmethod
    def kept(cls, slots: int | None, us: int | None, burst: int | None) -> Limits:
        """From the columns of a queue; what was never set keeps order."""
        return cls(slots or ORDERED, GroupRate(us, burst) if us and burst else None)

    def vacant(self, taken: int, waiting: int) -> int:
        """How many more may go, when so many have places, and so many of these have not been claimed yet."""
        room = vacant(self.slots, taken)
        return room if self.group_rate is None else min(room, self.group_rate.burst - waiting)

    @property
    def keeps_slot(self) -> bool:
        """Does a message that is claimed keep its place?"""
        return self.group_rate is None or self.slots < ANY


def vacant(slots: int, taken: int) -> int:
    """How many more may go."""
    return min(max(slots, 1) - taken, MOST_FREED)
