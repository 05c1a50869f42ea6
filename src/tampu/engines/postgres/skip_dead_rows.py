"""Where to begin looking when many dead rows lie before the live ones.

A transaction that stays open anywhere in the database keeps deleted rows from being removed, and every claim would step
over all messages that were delivered meanwhile. So while that is so, a process begins where it was: behind the last
message it took, and at the times it has seen to be past. What somebody commits late may lie before that; so the whole
index is looked at again now and then, as often as costs a twentieth of the time, and whenever nothing is found.
"""

from __future__ import annotations

import time
from collections.abc import Callable

SLOW_SECONDS = 0.005
"""A claim that takes longer may have stepped over dead rows: worth a question."""
DEAD = 10_000
"""So many are worth stepping around."""
TIMES = 20
"""A whole look is taken again after so many times its own duration."""
Times = tuple[int | None, int | None, int | None]
"""When the next delay, lease and expiry are due."""
_NEVER: Times = (None, None, None)


class DeadRowSkip:
    """Of one engine, whichever connection it has. What a commit has seen counts from the next one on."""

    def __init__(self) -> None:
        self._until = 0.0
        self._heads: dict[int, int] = {}
        self._past = _NEVER
        self._new_heads: dict[int, int] = {}
        self._began = 0.0

    def _active(self) -> bool:
        return time.monotonic() < self._until

    def begin(self) -> Times:
        """A commit begins: nothing that is due lies before these times; None: look from the beginning."""
        self._heads.update(self._new_heads)
        self._new_heads.clear()
        self._began = time.monotonic()
        return self._past if self._active() else _NEVER

    def undone(self) -> None:
        """What was taken is back."""
        self._new_heads.clear()

    def looked(self, now: int, due: Times) -> None:
        """What was due next, as a commit began."""
        delay, lease, expiry = (now if at is None else min(at, now) for at in due)
        self._past = (delay, lease, expiry)

    def head(self, q: int) -> int | None:
        """The position at rank 0 behind which a claim may begin; None: at the very front."""
        return self._heads.get(q) if self._active() else None

    def took(self, q: int, head: int | None, dead: Callable[[], int]) -> None:
        """A claim took messages, the last at this position of rank 0. ``dead`` says how many dead rows there are."""
        if head is not None:
            self._new_heads[q] = head
        seconds = time.monotonic() - self._began
        if seconds > SLOW_SECONDS and not self._active() and dead() > DEAD:
            self._until = time.monotonic() + TIMES * seconds

    def forget(self) -> None:
        """Messages may have come before the heads: look at everything."""
        self._until = 0.0
        self._heads.clear()
        self._new_heads.clear()
