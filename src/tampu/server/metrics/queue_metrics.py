"""Metrics read from the store on each scrape: queue depths, and whether maintenance keeps up."""

from __future__ import annotations

import time
from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tampu.broker import follower_verbs
from tampu.broker.admin import removal
from tampu.broker.core import Core
from tampu.broker.policies.alerts.state import counts as firing_counts
from tampu.model.message import State
from tampu.model.times import SECOND


class QueueDepths(Collector):
    """Counts and ages by queue. The engine maintains the counts in every commit."""

    def __init__(self, core: Core, most_queues: int) -> None:
        self._core = core
        self._most = most_queues

    def collect(self) -> Iterator[Metric]:
        counts = GaugeMetricFamily("tampu_messages", "Messages by state", labels=["tenant", "queue", "state"])
        ages = GaugeMetricFamily(
            "tampu_oldest_ready_seconds", "Age of the oldest ready message", labels=["tenant", "queue"]
        )
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
    """Whether maintenance is in time: delayed messages, expired leases, expired messages."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def collect(self) -> Iterator[Metric]:
        due = self._core.engine.next_due()
        lag = 0.0 if due is None else max(0, self._core.engine.now() - due) / SECOND
        yield GaugeMetricFamily("tampu_maintenance_lag_seconds", "How late the oldest due maintenance work is", lag)
        maintenance = self._core.maintenance
        if maintenance is not None:
            leads = float(maintenance.alive and maintenance.leads)
            yield GaugeMetricFamily("tampu_maintenance_leader", "1 on the node that does the maintenance", leads)
            idle = time.monotonic() - maintenance.last_run_at
            yield GaugeMetricFamily(
                "tampu_maintenance_idle_seconds", "Seconds since this node's maintenance last ran", idle
            )


class AlertMetrics(Collector):
    """For how many queues each alert fires."""

    def __init__(self, core: Core, most: int) -> None:
        self._core = core
        self._most = most

    def collect(self) -> Iterator[Metric]:
        firing = GaugeMetricFamily(
            "tampu_alert_firing", "Queues or followers for which an alert fires", labels=["tenant", "alert"]
        )
        engine = self._core.engine
        counts: dict[tuple[str, str], int] = {}
        for tenant in sorted({tenant for tenant, _ in engine.queues()}):
            for name, count in firing_counts(engine, tenant).items():
                label = (tenant, name) if len(counts) < self._most else ("other", "other")
                counts[label] = counts.get(label, 0) + count
        for label, count in counts.items():
            firing.add_metric(label, count)
        yield firing


class FollowerMetrics(Collector):
    """How far handlers are behind the journal."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def collect(self) -> Iterator[Metric]:
        lag = GaugeMetricFamily("tampu_follower_lag", "Transitions that a follower has not seen", labels=["follower"])
        parked = GaugeMetricFamily(
            "tampu_follower_parked", "1 if a follower is parked after errors", labels=["follower"]
        )
        for status in follower_verbs.statuses(self._core.engine):
            lag.add_metric([status.name], status.behind)
            parked.add_metric([status.name], float(status.status == "parked"))
        yield lag
        yield parked
