"""What one node gives to all callers together: a number for each resource, how much is in use, what was refused.

Limits of a single caller or request are elsewhere (rates, sizes, shares). These here keep a node alive when many
callers are within theirs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tampu.model.errors import Unavailable
from tampu.server.listings import THREADS
from tampu.server.settings import ServerSettings


class Resource:
    __slots__ = ("_taken", "measure", "most", "name", "refused")

    def __init__(self, name: str, most: int) -> None:
        self.name = name
        self.most = most
        self.refused = 0
        self.measure: Callable[[], int] | None = None
        """Says how much is in use, if somebody else counts it."""
        self._taken = 0

    @property
    def used(self) -> int:
        return self._taken if self.measure is None else self.measure()

    def take(self, count: int = 1) -> None:
        """Raises `Unavailable`, and takes nothing, if there is not enough."""
        if self._taken + count > self.most:
            self.refused += 1
            raise Unavailable(f"this node is at its limit of {self.most} {self.name}", hint="try again in a moment")
        self._taken += count

    def give(self, count: int = 1) -> None:
        self._taken -= count

    @contextlib.contextmanager
    def hold(self, count: int = 1) -> Iterator[None]:
        self.take(count)
        try:
            yield
        finally:
            self.give(count)


class Budget(Collector):
    def __init__(self, settings: ServerSettings) -> None:
        self.connections = Resource("connections", settings.max_connections)
        """uvicorn counts and refuses them, and our protocol counts the refusals."""
        self.body_bytes = Resource("body_bytes", max(settings.max_body_bytes, settings.max_body))
        """Bodies of more than 64 KB that are read or worked on."""
        self.polls = Resource("polls", settings.max_polls)
        """Claims and results that wait."""
        self.streams = Resource("streams", settings.max_streams)
        self.feeds = Resource("feeds", settings.max_feeds)
        self.listings = Resource("listings", settings.max_listings)
        """Long reads that run or wait for their turn, those of Spark too."""
        self.threads = Resource("threads", THREADS)
        """Threads of the listings that run. More wait, as `listings` that are not refused."""

    def collect(self) -> Iterator[Metric]:
        used = GaugeMetricFamily("tampu_budget_used", "How much of a resource of this node is in use", labels=["of"])
        most = GaugeMetricFamily("tampu_budget_limit", "How much of a resource this node has", labels=["of"])
        refused = CounterMetricFamily("tampu_budget_refused", "What was refused for want of a resource", labels=["of"])
        for resource in (
            self.connections, self.body_bytes, self.polls, self.streams, self.feeds, self.listings, self.threads,
        ):  # fmt: skip
            used.add_metric([resource.name], resource.used)
            most.add_metric([resource.name], resource.most)
            refused.add_metric([resource.name], resource.refused)
        yield from (used, most, refused)
