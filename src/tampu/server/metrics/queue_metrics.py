"""What is read of the store when somebody asks for the metrics: how full the queues are, and if keepers keep up."""

from __future__ import annotations

import time
from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tampu.broker import followers, removal
from tampu.broker.core import Core
from tampu.model.message import State
from tampu.model.times import SECOND


class QueueDepths(Collector):
    """Counts and ages of the queues; the engine keeps them with every commit."""

    def __init__(self, core: Core, most_queues: int) -> None:
        self._core = core
        self._most = most_queues

    def describe(self) -> Iterator[Metric]:
        """Said at registration; nothing is read for it."""
        yield from self._families()

    @staticmethod
    def _families() -> tuple[GaugeMetricFamily, GaugeMetricFamily]:
        return (
            GaugeMetricFamily("tampu_messages", "Messages by state", labels=["tenant", "queue", "state"]),
            GaugeMetricFamily("tampu_oldest_ready_seconds", "Age of the oldest ready", labels=["tenant", "queue"]),
        )

    def collect(self) -> Iterator[Metric]:
        counts, ages = self._families()
        engine = self._core.engine
        sums: dict[tuple[str, str, State], int] = {}
        oldest: dict[tuple[str, str], float] = {}
        shown = 0
        for tenant in sorted({tenant for tenant, _ in engine.queues()}):
            hidden = removal.hidden(engine, tenant)
            for row in engine.stats(tenant, None):
                if row.queue in hidden:
                    continue
                shown += 1
                label = (tenant, row.queue) if shown <= self._most else ("other", "other")
                for state, count in row.counts.items():
                    sums[*label, state] = sums.get((*label, state), 0) + count
                age = 0.0 if row.oldest_ready_us is None else max(0, row.now_us - row.oldest_ready_us) / SECOND
                oldest[label] = max(age, oldest.get(label, 0.0))
        for (tenant, queue, state), count in sums.items():
            counts.add_metric([tenant, queue, state], count)
        for (tenant, queue), age in oldest.items():
            ages.add_metric([tenant, queue], age)
        yield counts
        yield ages


class MaintenanceMetrics(Collector):
    """Do the keepers do in time what time alone brings about: delays, leases that ran out, expiries?"""

    def __init__(self, core: Core) -> None:
        self._core = core

    def describe(self) -> Iterator[Metric]:
        yield from self._families()

    @staticmethod
    def _families() -> tuple[GaugeMetricFamily, GaugeMetricFamily, GaugeMetricFamily]:
        return (
            GaugeMetricFamily("tampu_keeper_lag_seconds", "How long the first thing that is due has been due"),
            GaugeMetricFamily("tampu_keepers_lead", "1 on the node whose keepers do the work"),
            GaugeMetricFamily("tampu_keepers_idle_seconds", "Since this node's keepers last looked for work"),
        )

    def collect(self) -> Iterator[Metric]:
        lag, lead, idle = self._families()
        due = self._core.engine.next_due()
        lag.add_metric([], 0.0 if due is None else max(0, self._core.engine.now() - due) / SECOND)
        yield lag
        maintenance = self._core.maintenance
        if maintenance is not None:
            lead.add_metric([], float(maintenance.alive and maintenance.leads))
            idle.add_metric([], time.monotonic() - maintenance.last_run_at)
            yield lead
            yield idle


class FollowerMetrics(Collector):
    """How far handlers are behind the journal."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def describe(self) -> Iterator[Metric]:
        yield from self._families()

    @staticmethod
    def _families() -> tuple[GaugeMetricFamily, GaugeMetricFamily]:
        return (
            GaugeMetricFamily("tampu_follower_lag", "Transitions that a follower has not seen", labels=["follower"]),
            GaugeMetricFamily("tampu_follower_parked", "1 if a follower is parked after errors", labels=["follower"]),
        )

    def collect(self) -> Iterator[Metric]:
        lag, parked = self._families()
        for status in followers.statuses(self._core.engine):
            lag.add_metric([status.name], status.behind)
            parked.add_metric([status.name], float(status.failure is not None and status.failure.parked))
        yield lag
        yield parked
