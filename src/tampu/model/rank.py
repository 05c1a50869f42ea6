"""Every ordering is a rank: the ready index is sorted by (rank, position), so a claim is one index scan.

Ageing needs no background work. If the priority grows by one every ``ageing`` microseconds, the order of two messages
by ``published - priority * ageing`` never changes.

Only `fair` has no fixed rank: the engine computes the turn of a message when it becomes ready.
"""

from __future__ import annotations

NO_DEADLINE = 1 << 62
FAIR = 1 - (1 << 63)
"""Stands for: the rank in the ready index is a turn of the message's group."""


def rank(ordering: str, ageing_us: int, priority: int, deadline_us: int | None, created_us: int) -> int:
    """The rank of a message. The lowest goes first, equal ones in the order they were published."""
    if ordering == "priority":
        if not ageing_us:
            return -priority
        # A rank must fit into 64 bits; priorities beyond that are equal.
        return max(-NO_DEADLINE, min(NO_DEADLINE, created_us - priority * ageing_us))
    if ordering == "deadline":
        return NO_DEADLINE if deadline_us is None else deadline_us
    return FAIR if ordering == "fair" else 0
