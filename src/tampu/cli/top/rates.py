"""How much happens in each queue: counts of the last minute, from the journal."""

from __future__ import annotations

from collections import Counter, deque
from datetime import UTC, datetime

import msgspec

import tampu
from tampu.cli import journal_positions
from tampu.model.states import State

WINDOW = 60.0
"""Seconds."""
_MOST_READ = 10_000
"""Transitions that are read at once. If more have come, the counts of these stand for all: then rates are estimates."""
_MOST_FAILURES = 10
KINDS = ("published", "claimed", "done", "failed", "dead")
_KIND_OF = {"publish": "published", "claim": "claimed", "ack": "done"}
_FAILED = ("nack", "reject", "reap")
"""Verbs of an attempt that failed."""


class Rates:
    """Reads the journal a little further each time it is asked."""

    def __init__(self, store: tampu.Store) -> None:
        self._store = store
        latest = store.journal(limit=1).latest
        back = max(1, _MOST_READ // max(1, len(latest)))
        self._position = {partition: max(0, end - back) for partition, end in latest.items()}
        self._whole = all(end <= back for end in latest.values())
        """True if nothing that happened within the window was left out at the beginning."""
        self._first: float | None = None
        self._counts: deque[tuple[float, Counter[tuple[str, str]]]] = deque()
        self.failures: deque[tampu.Transition] = deque(maxlen=_MOST_FAILURES)
        """The latest failed attempts and dead letters, oldest first."""

    def read(self) -> dict[str, dict[str, float]]:
        """Per second, by queue and kind."""
        page = self._store.journal(after=self._position, limit=_MOST_READ)
        left = journal_positions.behind(page) if len(page.transitions) >= _MOST_READ else 0
        self._position = page.latest if left else page.position
        scale = 1 + left / len(page.transitions) if left else 1.0
        self._count(page.transitions, scale)
        now = datetime.now(UTC).timestamp()
        while self._counts and self._counts[0][0] < now - WINDOW:
            self._counts.popleft()
        began = now - WINDOW if self._whole or self._first is None else max(self._first, now - WINDOW)
        total: Counter[tuple[str, str]] = Counter()
        for _, counts in self._counts:
            total.update(counts)
        seconds = max(1.0, now - began)
        rates: dict[str, dict[str, float]] = {}
        for (queue, kind), count in total.items():
            rates.setdefault(queue, dict.fromkeys(KINDS, 0.0))[kind] = round(count / seconds, 6)
        return rates

    def _count(self, transitions: list[tampu.Transition], scale: float) -> None:
        seconds: dict[int, Counter[tuple[str, str]]] = {}
        for t in transitions:
            failed = t.verb in _FAILED
            kinds = {_KIND_OF.get(t.verb), "failed" if failed else None, "dead" if t.state == State.DEAD else None}
            if failed or t.state == State.DEAD:
                self.failures.append(t)
            counts = seconds.setdefault(t.at_us // 1_000_000, Counter())
            for kind in kinds - {None}:
                counts[t.queue, str(kind)] += scale  # type: ignore[assignment]  # a share of a count
        if transitions and self._first is None:
            self._first = transitions[0].at_us / 1e6
        self._counts.extend(sorted((float(second), counts) for second, counts in seconds.items()))


class Failure(msgspec.Struct, frozen=True):
    """A failed attempt, or a message that has become dead."""

    at: datetime
    queue: str
    id: str
    state: State | None
    attempt: int
    worker: str | None
    error: str | None


def failure(t: tampu.Transition) -> Failure:
    error = "the lease expired" if t.verb == "reap" else t.detail
    return Failure(t.at, t.queue, t.id, t.state, t.attempt, t.worker, error)
