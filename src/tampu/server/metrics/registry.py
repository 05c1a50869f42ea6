"""All metrics. Every label has few values: routes by template, a limited number of queues, known reasons.

Counters cover what went through this node. `queue_metrics` reads the store on each scrape.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter as Counts
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from tampu.model import reasons
from tampu.model.message import Lease, State
from tampu.model.outcome import Outcome
from tampu.model.times import SECOND
from tampu.server.auth.grants import Caller
from tampu.server.metrics.counters import Count, Histogram
from tampu.server.metrics.queue_metrics import AlertMetrics, FollowerMetrics, MaintenanceMetrics, QueueDepths
from tampu.wire import bodies

if TYPE_CHECKING:
    from tampu.server.server_state import ServerState

MOST_QUEUES = 500
"""Queues with their own label; the rest are summed as ``other``."""
MOST_OPEN = 50_000
"""Leases whose claim time is remembered until they are settled; the oldest beyond it are forgotten."""
_SHORT = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_LONG = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 1800, 7200, 86_400)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 1024, 10_000)
Label = tuple[str, str]


class Metrics:
    def __init__(self, server: ServerState) -> None:
        self.registry = CollectorRegistry()
        of = self.registry
        queue = ["tenant", "queue"]
        self.requests = Count("tampu_http_requests", "Requests answered", ["route", "status"])
        self.seconds = Histogram("tampu_http_seconds", "Time to answer", _SHORT, "route")
        self.published = Count("tampu_published", "Messages published through this node", queue)
        self.claimed = Count("tampu_claimed", "Messages claimed through this node", queue)
        self.settled = Count("tampu_settled", "Leases settled through this node", [*queue, "verb", "outcome"])
        self.retries = Count("tampu_retries", "Failed attempts that will be repeated", [*queue, "cause"])
        self.dead = Count("tampu_dead_letters", "Messages that became dead", [*queue, "reason"])
        self.waited = Histogram("tampu_wait_seconds", "From publish to claim", _LONG)
        self.worked = Histogram("tampu_work_seconds", "From claim to settle, if both went through this node", _LONG)
        self.commit_calls = Histogram("tampu_commit_calls", "Calls that shared a commit", _SIZES)
        self.commits = Histogram("tampu_commit_seconds", "Time that a commit took", _SHORT)
        for metric in (
            self.requests, self.seconds, self.published, self.claimed, self.settled, self.retries, self.dead,
            self.waited, self.worked, self.commit_calls, self.commits,
        ):  # fmt: skip
            of.register(metric)
        self.polls = Gauge("tampu_long_polls", "Long polls, feeds and streams that wait on this node", registry=of)
        self.polls.set_function(lambda: len(server.polls))
        self.feeds = Gauge("tampu_event_streams", "Open event streams of this node", registry=of)
        self.streams = Gauge("tampu_worker_streams", "Open worker streams of this node", registry=of)
        self.refused = Counter("tampu_refused", "Requests refused", ["code"], registry=of)
        durability = Gauge("tampu_durability", "1 for the durability in use", ["mode"], registry=of)
        durability.labels(server.core.engine.durability).set(1)
        of.register(server.budget)
        of.register(QueueDepths(server.core, MOST_QUEUES))
        of.register(MaintenanceMetrics(server.core))
        of.register(FollowerMetrics(server.core))
        of.register(AlertMetrics(server.core, MOST_QUEUES))
        server.core.coalescer.on_commit.append(self._commit)
        server.core.on_leases_expired = self._leases_expired
        self._labels: dict[Label, Label] = {}
        self._open: dict[str, float] = {}
        """When a message was claimed through this node, by receipt."""

    async def text(self, caller: Caller | None = None) -> bytes:
        """All metrics, or those that one caller may see."""
        visible = self.registry if caller is None else _Visible(self.registry, caller)
        return await asyncio.to_thread(generate_latest, visible)

    # -- called by handlers

    def publish(self, tenant: str, queue: str, count: int = 1) -> None:
        self.published.add(self._label(tenant, queue), count)

    def claim(self, leases: Sequence[Lease], now_us: int) -> None:
        """Count delivered messages; ``now_us`` is the store's time."""
        began, opened = time.perf_counter(), self._open
        counts = Counts((lease.message.tenant, lease.message.queue, lease.message.created_us) for lease in leases)
        for (tenant, queue, created_us), count in counts.items():
            self.claimed.add(self._label(tenant, queue), count)
            self.waited.add(max(0, now_us - created_us) / SECOND, count=count)
        opened.update(dict.fromkeys((lease.receipt for lease in leases), began))
        while len(opened) > MOST_OPEN:
            del opened[next(iter(opened))]

    def settle(self, tenant: str, settlements: Sequence[bodies.Settlement], outcomes: Sequence[Outcome]) -> None:
        now, opened = time.perf_counter(), self._open
        counts = Counts(
            (item.receipt.rpartition("/")[0], item.verb, item.reason, outcome.state, opened.pop(item.receipt, None))
            for item, outcome in zip(settlements, outcomes, strict=True)
        )
        for (queue, verb, reason, state, began), count in counts.items():
            label = self._label(tenant, queue)
            if state is None:
                self.settled.add((*label, verb, "refused"), count)
                continue
            self.settled.add((*label, verb, state.value), count)
            if began is not None:
                self.worked.add(now - began, count=count)
            if state is State.DEAD:
                why = reasons.RETRIES_EXHAUSTED if verb == "nack" else reasons.bounded(reason)
                self.dead.add((*label, why), count)
            elif verb == "nack" and state is not State.CANCELLED:
                self.retries.add((*label, "nack"), count)

    # -- called by the store, in the thread that leads a commit

    def _commit(self, calls: int, seconds: float) -> None:
        self.commit_calls.add(calls)
        self.commits.add(seconds)

    def _leases_expired(self, queues: Mapping[tuple[str, str], tuple[int, int]]) -> None:
        for queue, (ready, dead) in queues.items():
            label = self._label(*queue)
            if ready:
                self.retries.add((*label, reasons.LEASE_EXPIRED), ready)
            if dead:
                self.dead.add((*label, reasons.LEASE_EXPIRED), dead)

    def _label(self, tenant: str, queue: str) -> Label:
        label = (tenant, queue)
        known = self._labels.get(label)
        if known is None:
            if len(self._labels) >= MOST_QUEUES:
                return ("other", "other")
            known = self._labels[label] = label
        return known


class _Visible(Collector):
    """The metrics without the queues that a caller may not view."""

    def __init__(self, registry: CollectorRegistry, caller: Caller) -> None:
        self._registry = registry
        self._caller = caller

    def collect(self) -> Iterator[Metric]:
        for family in self._registry.collect():
            family.samples = [sample for sample in family.samples if self._may(sample.labels)]
            yield family

    def _may(self, labels: Mapping[str, str]) -> bool:
        tenant = labels.get("tenant")
        if tenant is None:
            return True
        queue = labels.get("queue")
        may = self._caller.may_all("view", "*") if queue is None else self._caller.may("view", queue)
        return tenant == self._caller.tenant and may
