"""In-memory record of the claims of this process that are not completely settled.

The reaper finds leases by the row of their claim. Once all messages of a claim are settled, the row can be deleted with
the last settle, so that no idle worker wakes up for it. This is only a saving. What this memory misses (a settle by
another process or in a user's transaction, an extended lease) the reaper checks once, when the row is due. So the count
of unsettled messages may be too high but never too low: a row that is deleted too early is a lease that never expires.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping

MOST = 10_000
"""Most claims to remember."""


class OpenClaims:
    """By lease: when the reaper checks the claim's row, and how many of its messages are not settled."""

    def __init__(self) -> None:
        self._claims: dict[int, tuple[int, int]] = {}
        self._lock = threading.Lock()

    def until_if_complete(self, lease: int, settled: int) -> int | None:
        """``until`` of the claim's row if settling this many messages completes the claim; else None."""
        until, left = self._claims.get(lease, (None, 0))
        return until if left == settled else None

    def committed(self, now: int, rows: Iterable[tuple[int, int, int]], settled: Mapping[int, int]) -> None:
        """After a commit: it wrote rows (until, lease, messages) and settled this many messages by claim.

        A row with 0 messages is for the rest of a claim. How many are left is unknown, so the claim is forgotten.
        """
        claims = self._claims
        with self._lock:
            for until, lease, count in rows:
                claims.pop(lease, None)
                if count:
                    claims[lease] = (until, count)
            for lease, count in settled.items():
                until, left = claims.pop(lease, (0, 0))
                if left > count:
                    claims[lease] = (until, left - count)
            # Forget the oldest, and those that were due: the reaper may have given their rows another `until`.
            while claims and (len(claims) > MOST or next(iter(claims.values()))[0] <= now):
                del claims[next(iter(claims))]
