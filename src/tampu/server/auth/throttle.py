"""Whoever shows bad keys again and again is told to wait. By address, per node.

Only refusals are counted and put off: somebody else's bad keys, from the same address, never hold up a good one.
"""

from __future__ import annotations

import time

from tampu.server.rate_limit import OverLimit, Quota

_WINDOW = 60.0
_MOST = 10_000


class Throttle:
    def __init__(self, attempts: int) -> None:
        self._attempts = attempts
        self._failed: dict[str, tuple[float, int]] = {}
        """By address: since when, and how many."""

    def failed(self, address: str) -> None:
        """Count a bad key; raises when there were too many."""
        now = time.monotonic()
        since, count = self._failed.pop(address, (now, 0))
        if now - since > _WINDOW:
            since, count = now, 0
        while len(self._failed) >= _MOST:  # the longest known goes first
            del self._failed[next(iter(self._failed))]
        self._failed[address] = (since, count + 1)
        if count >= self._attempts:
            left = since + _WINDOW - now
            quota = Quota(self._attempts, 0, left)
            raise OverLimit("too many bad keys from this address", quota, retry_after=left, hint="wait a minute")
