"""How many messages a worker should hold: enough to stay busy until the next claim returns, and no more.

By Little's law: running = rate x duration of a task; waiting = rate x duration of a claim and a settle. A worker of
no-ops holds hundreds of waiting messages, a worker of hour-long tasks none.
"""

from __future__ import annotations

import time

_MOST_AHEAD = 2_000
_FIRST = 16
_WEIGHT = 0.3
_LEAST_SECONDS = 0.000_002


class Prefetch:
    """The pools and the claimer report durations; the claimer asks for the limit. Lost updates between threads do no
    harm."""

    def __init__(self, concurrency: int) -> None:
        self._concurrency = concurrency
        self._run: float | None = None
        """Seconds from start to end of a task."""
        self._busy = 0.0
        """Seconds that a task occupies what it shares with the others, such as the event loop."""
        self._trip = 0.005
        """Seconds of a claim; a settle is assumed to take as long."""
        self.began: float | None = None
        """Start of the running tasks, if none has ended since."""

    def ran(self, count: int, seconds: float, busy: float) -> None:
        """``count`` tasks have ended; ``seconds`` and ``busy`` are their totals."""
        self.began = None
        if self._run is None:
            self._run, self._busy = seconds / count, busy / count
            return
        weight = 1 - (1 - _WEIGHT) ** min(count, 50)
        self._run += (seconds / count - self._run) * weight
        self._busy += (busy / count - self._busy) * weight

    def claimed(self, seconds: float) -> None:
        self._trip += (seconds - self._trip) * _WEIGHT

    def to_claim(self, held: int) -> int:
        """How many to claim when ``held`` are held. The waiting part is refilled when half empty, not one by one."""
        running, ahead = self._target()
        free = running + ahead - held
        return free if held < running or free >= ahead / 2 else 0

    def _target(self) -> tuple[int, int]:
        """(messages to run at once, messages to hold besides)"""
        age = 0.0 if self.began is None else time.monotonic() - self.began
        if self._run is None and age < self._trip:
            return min(_FIRST, self._concurrency), 0
        run = max(self._run or 0.0, age, _LEAST_SECONDS)
        rate = min(self._concurrency / run, 1 / max(self._busy, _LEAST_SECONDS))
        ahead = min(_MOST_AHEAD, int(rate * self._trip * 3))
        return min(self._concurrency, int(rate * run) + 1), ahead
