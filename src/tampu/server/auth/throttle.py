"""Limits bad keys per address, on each node.

Only refused requests are counted and limited. Bad keys from an address never delay a valid key from the same address.
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
        """By address: (start of the window, bad keys in it)."""

    def failed(self, address: str) -> None:
        """Count a bad key; raises `OverLimit` if there were too many."""
        now = time.monotonic()
        since, count = self._failed.pop(address, (now, 0))
        if now - since > _WINDOW:
            since, count = now, 0
        while len(self._failed) >= _MOST:  # drop the oldest
            del self._failed[next(iter(self._failed))]
        self._failed[address] = (since, count + 1)
        if count >= self._attempts:
            left = since + _WINDOW - now
            quota = Quota(self._attempts, 0, left)
            raise OverLimit("too many bad keys from this address", quota, retry_after=left, hint="wait a minute")
