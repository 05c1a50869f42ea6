"""The book of leases that a worker holds, and when each has to be extended. No I/O, no clock of its own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

_PART = 3
"""A lease is extended when a third of it is over, so that two more tries fit into the rest."""
_ASK_SECONDS = 3.0
"""Asked at least so often, because the answer also says whether somebody wants the message cancelled."""


class LeaseTimers:
    def __init__(self, lease: float) -> None:
        self._lease = lease
        self._every = min(lease / _PART, _ASK_SECONDS)
        self._due: dict[str, float] = {}
        """When to extend each; in that order, because all are extended after the same time."""

    def __len__(self) -> int:
        return len(self._due)

    @property
    def receipts(self) -> list[str]:
        return list(self._due)

    def add(self, receipts: Iterable[str], now: float) -> None:
        self._due.update(dict.fromkeys(receipts, now + self._every))

    def remove(self, receipts: Iterable[str]) -> None:
        for receipt in receipts:
            self._due.pop(receipt, None)

    def due(self, now: float) -> list[str]:
        """Those to extend now; they count as extended."""
        found = []
        for receipt, at in self._due.items():
            if at > now:
                break
            found.append(receipt)
        for receipt in found:
            del self._due[receipt]
            self._due[receipt] = now + self._every
        return found

    def again(self, receipts: Sequence[str], now: float, after: float = 0.0) -> None:
        """They were not extended after all: soon again, but not before so many seconds.

        Who wants to be left alone is asked no more often than leases need it.
        """
        if after:
            self._every = self._lease / _PART
        soon = now + min(self._every, max(self._every / 10, after))
        for receipt in receipts:
            if receipt in self._due:
                self._due[receipt] = soon
        self._due = dict(sorted(self._due.items(), key=lambda item: item[1]))

    def next(self) -> float | None:
        """When something is due."""
        return next(iter(self._due.values()), None)
