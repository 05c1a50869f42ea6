"""How many messages a worker should hold: enough to be busy until the next claim is answered, and no more.

By Little's law: what is in service is the rate times the time each takes; what has to wait besides is the rate times
the time of a claim and a settle. A no-op gets hundreds, an hour-long task none.
"""

from __future__ import annotations

import time

_MOST_AHEAD = 2_000
_FIRST = 16
_WEIGHT = 0.3
_LEAST_SECONDS = 0.000_002


class Prefetch:
    """Fed by those who run and claim; asked by who claims. Lost updates between threads do no harm."""

    def __init__(self, concurrency: int) -> None:
        self._concurrency = concurrency
        self._run: float | None = None
        """Seconds from start to end of a task."""
        self._busy = 0.0
        """Seconds a task keeps the one thing that runs all of its kind, such as the event loop."""
        self._trip = 0.005
        """Seconds of a claim, which a settle takes too."""
        self.began: float | None = None
        """When what runs now began to run, if nothing has ended since."""

    def ran(self, count: int, seconds: float, busy: float) -> None:
        """So many tasks ended, which took so long altogether."""
        self.began = None
        if self._run is None:
            self._run, self._busy = seconds / count, busy / count
            return
        weight = 1 - (1 - _WEIGHT) ** min(count, 50)
        self._run += (seconds / count - self._run) * weight
        self._busy += (busy / count - self._busy) * weight

    def claimed(self, seconds: float) -> None:
        self._trip += (seconds - self._trip) * _WEIGHT

    def room(self, held: int) -> int:
        """How many to claim for who holds so many. What only waits is filled up by halves, not one by one."""
        serving, ahead = self._target()
        free = serving + ahead - held
        return free if held < serving or free >= ahead / 2 else 0

    def _target(self) -> tuple[int, int]:
        """(how many to have in service, how many more to hold)"""
        age = 0.0 if self.began is None else time.monotonic() - self.began
        if self._run is None and age < self._trip:
            return min(_FIRST, self._concurrency), 0
        run = max(self._run or 0.0, age, _LEAST_SECONDS)
        rate = min(self._concurrency / run, 1 / max(self._busy, _LEAST_SECONDS))
        ahead = min(_MOST_AHEAD, int(rate * self._trip * 3))
        return min(self._concurrency, int(rate * run) + 1), ahead
