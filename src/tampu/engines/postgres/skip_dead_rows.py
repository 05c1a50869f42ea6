"""Where index scans start when many dead rows lie before the live ones.

A transaction that stays open anywhere in the database keeps deleted rows from being removed, so every claim would step
over all messages delivered since. While that is so, a process starts after the last message it took, and at the due
times it has already passed. A late commit may put rows before that point. So the whole index is scanned again whenever
nothing is found, and now and then, at most a twentieth of the time.
"""

from __future__ import annotations

import time
from collections.abc import Callable

SLOW_SECONDS = 0.005
"""After a claim that takes longer, count the dead rows."""
DEAD = 10_000
"""Dead rows from which on it is worth skipping them."""
TIMES = 20
"""The whole index is scanned again after this many times the duration of the last whole scan."""
Times = tuple[int | None, int | None, int | None]
"""When the next delay, lease and expiry are due."""
_NEVER: Times = (None, None, None)


class DeadRowSkip:
    """Start positions of one engine, kept when it reconnects. What a commit has seen counts from the next one on."""

    def __init__(self) -> None:
        self._until = 0.0
        self._heads: dict[int, int] = {}
        self._past = _NEVER
        self._new_heads: dict[int, int] = {}
        self._began = 0.0

    def _active(self) -> bool:
        return time.monotonic() < self._until

    def begin(self) -> Times:
        """Called when a commit begins. Nothing is due before the returned times; None: scan from the start."""
        self._heads.update(self._new_heads)
        self._new_heads.clear()
        self._began = time.monotonic()
        return self._past if self._active() else _NEVER

    def rolled_back(self) -> None:
        """The commit was rolled back: messages it took are in the index again."""
        self._new_heads.clear()

    def saw_due(self, now: int, due: Times) -> None:
        """Remember what was due next when a commit began."""
        delay, lease, expiry = (now if at is None else min(at, now) for at in due)
        self._past = (delay, lease, expiry)

    def head(self, q: int) -> int | None:
        """The position at rank 0 after which a claim may start; None: at the front."""
        return self._heads.get(q) if self._active() else None

    def claimed(self, q: int, head: int | None, dead: Callable[[], int]) -> None:
        """A claim took messages, the last one at this position of rank 0. ``dead`` counts the dead rows."""
        if head is not None:
            self._new_heads[q] = head
        seconds = time.monotonic() - self._began
        if seconds > SLOW_SECONDS and not self._active() and dead() > DEAD:
            self._until = time.monotonic() + TIMES * seconds

    def forget(self) -> None:
        """Messages may have been put before the known positions: scan everything again."""
        self._until = 0.0
        self._heads.clear()
        self._new_heads.clear()
