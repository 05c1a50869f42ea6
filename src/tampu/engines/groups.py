"""Slots and rates of groups: how many messages of a group are delivered at once, and how often. For all engines.

A message takes a slot of its group when it becomes ready, and gives it back in the commit in which it ends or dies.
While all slots are taken, the other messages wait in `held`. A free slot goes to the next one, in publish order. So a
group never has more leases than slots, whatever happens to workers, and claim need not check.

With `ORDERED` a group has one slot, and a message that will be retried keeps it: no other overtakes. With a number of
slots, a message that waits for its time (a delay, a retry) has no slot and asks for one when the time comes.

A group may also have a `GroupRate`: tokens come at a steady rate, up to a burst, and each delivery spends one. A ready
message has its token reserved, so claim need not check. Claiming spends the token. In the same commit the next message
of the group moves from `held` to `delayed`, until the time of its own token. With a group rate alone, claiming a
message frees its slot; a message that returns for a retry needs another token.
"""

from __future__ import annotations

import math

import msgspec

ORDERED = 0
ANY = 1 << 30
"""More slots than any group has messages: none waits for one."""
MOST_FREED = 100
"""Messages of a group that one commit admits at most. Only after a limit was raised or removed there may be more."""


def stored(slots: int | None) -> int:
    """The value an engine stores with the queue. Without a limit, messages that still wait for a slot get one."""
    return ANY if slots is None else slots


class GroupRate(msgspec.Struct, frozen=True):
    """A rate of deliveries for each group. A store keeps one time per group, ``spent``: when the burst is full."""

    us: int
    """Microseconds between two tokens."""
    burst: int
    """How many unused tokens a group can save up."""

    def due(self, spent: int, now: int, position: int) -> int:
        """When there is a token for the message at this position, from 1, among those that wait for one."""
        return max(spent, now) - (self.burst - position) * self.us

    def spend(self, spent: int, now: int, count: int = 1) -> int:
        """When the burst is full again, after ``count`` deliveries now."""
        return max(spent, now) + count * self.us

    def most(self, now: int) -> int:
        """When the burst is full again if it is empty now. Later stored times are ignored, whatever the old rate."""
        return now + self.burst * self.us


_LONGEST = 10**15


def group_rate(rate: float, burst: int) -> GroupRate | None:
    """The rate for this many deliveries per second, rounded so that it is never exceeded; None for 0."""
    if not rate:
        return None
    us = min(math.ceil(1_000_000 / rate - 1e-6), _LONGEST)
    return GroupRate(us, min(burst or max(1, math.ceil(rate)), max(1, _LONGEST // us)))


class Limits(msgspec.Struct, frozen=True):
    """The limits of each group of a queue, as an engine stores them."""

    slots: int = ORDERED
    group_rate: GroupRate | None = None

    @classmethod
    def from_row(cls, slots: int | None, us: int | None, burst: int | None) -> Limits:
        """From the columns of a queue. NULL slots mean `ORDERED`."""
        return cls(slots or ORDERED, GroupRate(us, burst) if us and burst else None)

    def vacant(self, taken: int, waiting: int) -> int:
        """How many slots are free, if ``taken`` are taken and ``waiting`` of these messages are not claimed yet."""
        free = vacant(self.slots, taken)
        return free if self.group_rate is None else min(free, self.group_rate.burst - waiting)

    @property
    def keeps_slot(self) -> bool:
        """True if a claimed message keeps its slot."""
        return self.group_rate is None or self.slots < ANY


def vacant(slots: int, taken: int) -> int:
    """How many slots are free, up to `MOST_FREED`."""
    return min(max(slots, 1) - taken, MOST_FREED)
