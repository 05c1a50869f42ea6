"""Every ordering is a rank: the ready index is kept by (rank, position), so claim is one scan whatever the ordering.

Ageing needs no background work: priority that grows by one step each ``ageing`` microseconds of waiting keeps
any two messages in the order of ``published - priority * ageing``, for ever.

Only the ordering `fair` has no rank of its own: which turn a message has, the engine finds when it becomes ready.
"""

from __future__ import annotations

NO_DEADLINE = 1 << 62
FAIR = 1 - (1 << 63)
"""The rank of a message whose rank in the ready index is a turn of its group."""


def rank(ordering: str, ageing_us: int, priority: int, deadline_us: int | None, created_us: int) -> int:
    """Where a message stands in its queue; the lowest goes first, equals in the order they came."""
    if ordering == "priority":
        if not ageing_us:
            return -priority
        # A rank is a 64-bit number in every engine; priorities worth more than that many years are equal.
        return max(-NO_DEADLINE, min(NO_DEADLINE, created_us - priority * ageing_us))
    if ordering == "deadline":
        return NO_DEADLINE if deadline_us is None else deadline_us
    return FAIR if ordering == "fair" else 0
