"""Gathers what `tampu top` shows, over the public methods of a store: so any url will do."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime
from typing import Any

import msgspec

import tampu
from tampu.cli import documents
from tampu.cli.top.rates import KINDS, Failure, Rates, failure

_MOST_QUEUES = 100
"""Queues whose leased messages are read."""
_MOST_LEASED = 200
"""Leased messages that are read in each."""
_MOST_PROGRESS = 20
"""Messages whose progress is read, those that run longest."""


class Work(msgspec.Struct, frozen=True):
    """A message that a worker has leased."""

    id: str
    queue: str
    type: str
    attempt: int
    started_at: datetime | None
    lease_until: datetime | None
    progress: tampu.Progress | None = None


class Worker(msgspec.Struct, frozen=True):
    """A worker that has leases; those that wait for messages are not seen."""

    worker: str | None
    leased: int
    running: list[Work]
    """Those that run longest first."""


class Picture(msgspec.Struct, frozen=True):
    """A store at one moment."""

    at: datetime
    stats: list[tampu.Stats]
    rates: dict[str, dict[str, float]] | None
    """Per second in the last minute, by queue; None if the key may not read the journal."""
    workers: list[Worker]
    failures: list[Failure]
    """The latest, newest first."""

    def rate(self, queue: str) -> dict[str, float] | None:
        if self.rates is None:
            return None
        return self.rates.get(queue) or dict.fromkeys(KINDS, 0.0)

    def document(self) -> dict[str, Any]:
        """For scripts, with the names of the other documents."""
        return {
            "at": self.at,
            "queues": [{**documents.stats(s), "rates": self.rate(s.queue)} for s in self.stats],
            "workers": msgspec.to_builtins(self.workers),
            "failures": msgspec.to_builtins(self.failures),
        }


class Overview:
    def __init__(self, store: tampu.Store) -> None:
        self._store = store
        self._rates: Rates | None = None
        with contextlib.suppress(tampu.Forbidden):
            self._rates = Rates(store)

    def take(self) -> Picture:
        found = self._store.stats()
        stats = [found] if isinstance(found, tampu.Stats) else list(found)
        rates = None if self._rates is None else self._rates.read()
        failures = [] if self._rates is None else [failure(t) for t in reversed(self._rates.failures)]
        return Picture(datetime.now(UTC), stats, rates, self._workers(stats), failures)

    def _workers(self, stats: list[tampu.Stats]) -> list[Worker]:
        leased: list[tampu.Message] = []
        for queue in [s.queue for s in stats if s.leased][:_MOST_QUEUES]:
            with contextlib.suppress(tampu.Forbidden, tampu.NotFound):
                leased += self._store.messages(queue, state=tampu.State.LEASED, limit=_MOST_LEASED)
        leased.sort(key=lambda m: (m.started_us or m.created_us, m.id))
        by_worker: dict[str | None, list[Work]] = {}
        for number, message in enumerate(leased):
            by_worker.setdefault(message.worker, []).append(self._work(message, with_progress=number < _MOST_PROGRESS))
        workers = [Worker(name, len(works), works) for name, works in by_worker.items()]
        return sorted(workers, key=lambda one: (-one.leased, one.worker or ""))

    def _work(self, m: tampu.Message, *, with_progress: bool) -> Work:
        progress = None
        if with_progress:
            with contextlib.suppress(tampu.NotFound):
                progress = self._store.get(m.id).progress
        return Work(m.id, m.queue, m.type, m.attempts, m.started_at, m.lease_until, progress)
