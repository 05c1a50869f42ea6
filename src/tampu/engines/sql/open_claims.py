"""Which claims of this process are still to be settled, and how many messages of each.

The reaper finds leases by the row of their claim. When all its messages are settled, nobody needs to look at it any
more, and a worker that has nothing to do should not be woken for it. This memory only saves that look: what it does not
know (another process settles, or the user's own transaction; a lease was extended) the reaper looks at, once, when its
time has come. So it may count too many as not settled, and never too few: a row that goes too early is a lease that
never ends.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping

MOST = 10_000
"""Claims that are remembered."""


class OpenClaims:
    """By lease: when the claim's row will be looked at, and how many of its messages are not settled."""

    def __init__(self) -> None:
        self._claims: dict[int, tuple[int, int]] = {}
        self._lock = threading.Lock()

    def rest(self, lease: int, settled: int) -> int | None:
        """The ``until`` of the claim's row, if so many messages are all that is left of it."""
        until, left = self._claims.get(lease, (None, 0))
        return until if left == settled else None

    def landed(self, now: int, watched: Iterable[tuple[int, int, int]], settled: Mapping[int, int]) -> None:
        """A commit has happened: it wrote rows (until, lease, messages), and ended so many leases of each claim.

        Rows of no messages are of what is left of claims: how much that is, another commit may be changing just now.
        """
        claims = self._claims
        with self._lock:
            for until, lease, count in watched:
                claims.pop(lease, None)
                if count:
                    claims[lease] = (until, count)
            for lease, count in settled.items():
                until, left = claims.pop(lease, (0, 0))
                if left > count:
                    claims[lease] = (until, left - count)
            # The oldest first; what was due has been looked at, and perhaps its row has another `until` now.
            while claims and (len(claims) > MOST or next(iter(claims.values()))[0] <= now):
                del claims[next(iter(claims))]
