"""The leases that a worker holds, and when each has to be extended. No I/O, no clock of its own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

_PART = 3
"""A lease is extended after a third of its time, so that two more tries fit into the rest."""
_ASK_SECONDS = 3.0
"""Extend at least this often: the reply also says whether the message has a cancel request."""


class LeaseTimers:
    def __init__(self, lease: float) -> None:
        self._lease = lease
        self._every = min(lease / _PART, _ASK_SECONDS)
        self._due: dict[str, float] = {}
        """When to extend each. Sorted by time, because the interval is the same for all."""

    def add(self, receipts: Iterable[str], now: float) -> None:
        self._due.update(dict.fromkeys(receipts, now + self._every))

    def remove(self, receipts: Iterable[str]) -> None:
        for receipt in receipts:
            self._due.pop(receipt, None)

    def due(self, now: float) -> list[str]:
        """The leases to extend now; they count as extended."""
        found = []
        for receipt, at in self._due.items():
            if at > now:
                break
            found.append(receipt)
        for receipt in found:
            del self._due[receipt]
            self._due[receipt] = now + self._every
        return found

    def retry(self, receipts: Sequence[str], now: float, after: float = 0.0) -> None:
        """These were not extended: try again soon, but not before ``after`` seconds.

        A store that asked for a pause is from then on called no more often than the leases need.
        """
        if after:
            self._every = self._lease / _PART
        retry_at = now + min(self._every, max(self._every / 10, after))
        for receipt in receipts:
            if receipt in self._due:
                self._due[receipt] = retry_at
        self._due = dict(sorted(self._due.items(), key=lambda item: item[1]))

    def next(self) -> float | None:
        """When the next lease is due."""
        return next(iter(self._due.values()), None)
