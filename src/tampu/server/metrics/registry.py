"""What Prometheus is told. Every label has few values: routes by their template, queues up to a number, known reasons.

Counts are of what went through this node. What the store says of itself is read when somebody asks: `watched`.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter as Alike
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from tampu.model import reasons
from tampu.model.message import Lease, State
from tampu.model.outcome import Outcome
from tampu.model.times import SECOND
from tampu.server.auth.grants import Who
from tampu.server.metrics.counters import Count, Times
from tampu.server.metrics.queue_metrics import FollowerMetrics, MaintenanceMetrics, QueueDepths
from tampu.wire import bodies

if TYPE_CHECKING:
    from tampu.server.server_state import ServerState

MOST_QUEUES = 500
"""Queues with a label of their own; the rest are summed as ``other``."""
MOST_OPEN = 50_000
"""Leases whose claim is remembered until they are settled; of more, the oldest are forgotten."""
_QUICK = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_LONG = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 1800, 7200, 86_400)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 1024, 10_000)
Label = tuple[str, str]


class Metrics:
    def __init__(self, node: ServerState) -> None:
        self.registry = CollectorRegistry()
        of = self.registry
        place = ["tenant", "queue"]
        self.requests = Count("tampu_http_requests", "Requests answered", ["route", "status"])
        self.seconds = Times("tampu_http_seconds", "Time to answer", _QUICK, "route")
        self.published = Count("tampu_published", "Messages published through this node", place)
        self.claimed = Count("tampu_claimed", "Messages claimed through this node", place)
        self.settled = Count("tampu_settled", "Leases settled through this node", [*place, "verb", "outcome"])
        self.retries = Count("tampu_retries", "Attempts that failed and will be repeated", [*place, "cause"])
        self.dead = Count("tampu_dead_letters", "Messages that died", [*place, "reason"])
        self.waited = Times("tampu_wait_seconds", "From publish to claim", _LONG)
        self.worked = Times("tampu_work_seconds", "From claim to settle, when both went through this node", _LONG)
        self.together = Times("tampu_commit_calls", "Calls that shared a commit", _SIZES)
        self.commits = Times("tampu_commit_seconds", "Time that a commit took", _QUICK)
        for tally in (
            self.requests, self.seconds, self.published, self.claimed, self.settled, self.retries, self.dead,
            self.waited, self.worked, self.together, self.commits,
        ):  # fmt: skip
            of.register(tally)
        self.polls = Gauge("tampu_long_polls", "Long polls, feeds and streams that wait here now", registry=of)
        self.polls.set_function(lambda: len(node.polls))
        self.feeds = Gauge("tampu_event_streams", "Event streams that are open here now", registry=of)
        self.streams = Gauge("tampu_worker_streams", "Streams of workers that are open here now", registry=of)
        self.refused = Counter("tampu_refused", "Requests refused", ["code"], registry=of)
        durability = Gauge("tampu_durability", "1 for the durability that holds", ["mode"], registry=of)
        durability.labels(node.core.engine.durability).set(1)
        of.register(QueueDepths(node.core, MOST_QUEUES))
        of.register(MaintenanceMetrics(node.core))
        of.register(FollowerMetrics(node.core))
        node.core.coalescer.on_commit.append(self._commit)
        node.core.on_leases_expired = self._lapse
        self._labels: dict[Label, Label] = {}
        self._open: dict[str, float] = {}
        """By receipt, when its message was claimed here."""

    async def text(self, who: Who | None = None) -> bytes:
        """All there is, or what one caller may see of it."""
        told = self.registry if who is None else _Seen(self.registry, who)
        return await asyncio.to_thread(generate_latest, told)

    # -- what went through here

    def publish(self, tenant: str, queue: str, count: int = 1) -> None:
        self.published.add(self._label(tenant, queue), count)

    def claim(self, leases: Sequence[Lease], now_us: int) -> None:
        """Messages were handed out; ``now_us`` is the store's time."""
        began, opened = time.perf_counter(), self._open
        alike = Alike((lease.message.tenant, lease.message.queue, lease.message.created_us) for lease in leases)
        for (tenant, queue, created_us), count in alike.items():
            self.claimed.add(self._label(tenant, queue), count)
            self.waited.add(max(0, now_us - created_us) / SECOND, count=count)
        opened.update(dict.fromkeys((lease.receipt for lease in leases), began))
        while len(opened) > MOST_OPEN:
            del opened[next(iter(opened))]

    def settle(self, tenant: str, settlements: Sequence[bodies.Settlement], outcomes: Sequence[Outcome]) -> None:
        now, opened = time.perf_counter(), self._open
        alike = Alike(
            (item.receipt.rpartition("/")[0], item.verb, item.reason, outcome.state, opened.pop(item.receipt, None))
            for item, outcome in zip(settlements, outcomes, strict=True)
        )
        for (queue, verb, reason, state, began), count in alike.items():
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

    # -- what the store tells, from the thread that leads a commit

    def _commit(self, calls: int, seconds: float) -> None:
        self.together.add(calls)
        self.commits.add(seconds)

    def _lapse(self, queues: Mapping[tuple[str, str], tuple[int, int]]) -> None:
        for place, (back, dead) in queues.items():
            label = self._label(*place)
            if back:
                self.retries.add((*label, reasons.LEASE_EXPIRED), back)
            if dead:
                self.dead.add((*label, reasons.LEASE_EXPIRED), dead)

    def _label(self, tenant: str, queue: str) -> Label:
        place = (tenant, queue)
        known = self._labels.get(place)
        if known is None:
            if len(self._labels) >= MOST_QUEUES:
                return ("other", "other")
            known = self._labels[place] = place
        return known


class _Seen(Collector):
    """The measurements, with only those queues by name that a caller may view."""

    def __init__(self, registry: CollectorRegistry, who: Who) -> None:
        self._registry = registry
        self._who = who

    def collect(self) -> Iterator[Metric]:
        for family in self._registry.collect():
            family.samples = [sample for sample in family.samples if self._may(sample.labels)]
            yield family

    def _may(self, labels: Mapping[str, str]) -> bool:
        tenant = labels.get("tenant")
        return tenant is None or (tenant == self._who.tenant and self._who.may("view", labels["queue"]))
