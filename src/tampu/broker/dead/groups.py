"""Counts dead letters by the fingerprint of their error."""

from __future__ import annotations

from collections.abc import Iterable

from tampu.broker.dead.filters import error_of, fingerprint_of
from tampu.model.dead import DeadGroup
from tampu.model.message import Message
from tampu.model.times import instant, moment

_MOST = 1000
"""Groups that are counted."""


class Groups:
    def __init__(self) -> None:
        self._groups: dict[str, _Group] = {}

    def add(self, message: Message) -> None:
        key = fingerprint_of(message)
        if key in self._groups or len(self._groups) < _MOST:
            self._groups.setdefault(key, _Group()).add(message)

    def merge(self, page: Iterable[DeadGroup]) -> None:
        """Add groups that were counted elsewhere."""
        for one in page:
            if one.fingerprint in self._groups or len(self._groups) < _MOST:
                self._groups.setdefault(one.fingerprint, _Group()).merge(one)

    def views(self) -> list[DeadGroup]:
        """The largest first."""
        found = sorted(self._groups.items(), key=lambda group: (-group[1].count, group[0]))
        return [group.view(key) for key, group in found]


class _Group:
    """A group of equal errors, while dead letters are counted."""

    def __init__(self) -> None:
        self.count = 0
        self.queues: dict[str, int] = {}
        self.reasons: dict[str, int] = {}
        self.first_us = 1 << 62
        self.last_us = 0
        self.sample = ""
        self.error = ""

    def add(self, message: Message) -> None:
        self.count += 1
        reason, died = message.reason or "", message.ended_us or 0
        self.queues[message.queue] = self.queues.get(message.queue, 0) + 1
        self.reasons[reason] = self.reasons.get(reason, 0) + 1
        self.first_us = min(self.first_us, died)
        if died >= self.last_us:
            self.last_us, self.sample, self.error = died, message.id, error_of(message)

    def merge(self, other: DeadGroup) -> None:
        self.count += other.count
        for own, more in ((self.queues, other.queues), (self.reasons, other.reasons)):
            for name, count in more.items():
                own[name] = own.get(name, 0) + count
        self.first_us = min(self.first_us, instant(other.first_at, "first_at"))
        last_us = instant(other.last_at, "last_at")
        if last_us >= self.last_us:
            self.last_us, self.sample, self.error = last_us, other.sample, other.error

    def view(self, fingerprint: str) -> DeadGroup:
        return DeadGroup(
            fingerprint=fingerprint, error=self.error, count=self.count, first_at=moment(self.first_us),
            last_at=moment(self.last_us), queues=self.queues, reasons=self.reasons, sample=self.sample,
        )  # fmt: skip
