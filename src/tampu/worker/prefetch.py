"""What the next claim asks for: how many messages, and of which queues first.

A worker should hold enough to stay busy until the next claim returns, and no more.

By Little's law: running = rate x duration of a task; waiting = rate x duration of a claim and a settle. A worker of
no-ops holds hundreds of waiting messages, a worker of hour-long tasks none.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from tampu.broker import validate
from tampu.model.errors import InvalidConfig

_MOST_AHEAD = 2_000
_FIRST = 16
_WEIGHT = 0.3
_LEAST_SECONDS = 0.000_002
_HEAVIEST = 1000


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


class QueueOrder:
    """Smooth weighted round robin: each queue comes first in proportion to its weight.

    The others follow it, heavier ones first, so that no claim returns empty while there is work.
    """

    def __init__(self, weights: Mapping[str, int], *, strict: bool = False) -> None:
        if not weights:
            raise InvalidConfig("a worker needs at least one queue", field="queues")
        for name, weight in weights.items():
            validate.name(name, "queue")
            if not isinstance(weight, int) or not 1 <= weight <= _HEAVIEST:
                raise InvalidConfig(f"the weight of {name} must be 1 to {_HEAVIEST}", field="queues")
        self.names = list(weights)
        self._strict = strict or len(weights) == 1
        self._weights = dict(weights)
        self._credit = dict.fromkeys(weights, 0)
        self._heavy = sorted(weights, key=lambda name: -weights[name])

    def next(self) -> list[str]:
        """The queues of the next claim, in order."""
        if self._strict:
            return self.names
        for name, weight in self._weights.items():
            self._credit[name] += weight
        first = max(self.names, key=self._credit.__getitem__)
        self._credit[first] -= sum(self._weights.values())
        return [first, *(name for name in self._heavy if name != first)]


def parse_queues(text: str | Sequence[str]) -> dict[str, int]:
    """``critical=5,default`` → weights."""
    found: dict[str, int] = {}
    parts = [part for one in ([text] if isinstance(text, str) else text) for part in one.split(",")]
    for part in parts:
        name, equals, weight = part.strip().partition("=")
        if not name or (equals and not weight.isdigit()):
            raise InvalidConfig(
                f"{part.strip()!r} is not a queue or queue=weight",
                field="queues",
                hint="for example critical=5,default",
            )
        found[name] = int(weight) if equals else 1
    return found
