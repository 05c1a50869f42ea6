"""Prometheus metrics of a worker: `tampu work --metrics-port`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tampu.model.errors import InvalidConfig, Unavailable
from tampu.model.extras import install
from tampu.worker.runner import Runner


class _Collector:
    """Reads the runner when the metrics are asked for, so that a worker nobody asks counts nothing twice."""

    def __init__(self, runner: Runner, core: Any) -> None:
        self._runner = runner
        self._core = core

    def collect(self) -> Iterator[Any]:
        runner, core = self._runner, self._core
        ended = core.CounterMetricFamily(
            "tampu_worker_attempts", "Attempts that have ended, by task and outcome", labels=["task", "outcome"]
        )
        for task, counts in list(runner.outcomes.items()):
            for outcome, count in counts.items():
                ended.add_metric([task, outcome], count)
        yield ended
        yield core.GaugeMetricFamily("tampu_worker_held", "Leased messages of this worker", runner.held)
        yield core.GaugeMetricFamily(
            "tampu_worker_concurrency", "Maximum tasks at once on the loop, and in threads", runner.options.concurrency
        )
        yield core.GaugeMetricFamily(
            "tampu_worker_store_up", "1 if the store answers, 0 during an outage", 0 if runner.outages.down else 1
        )


def serve(runner: Runner, port: int, host: str) -> None:
    """Serve ``/metrics`` from a thread, until the process ends."""
    try:
        from prometheus_client import CollectorRegistry, core, start_http_server
        from prometheus_client.platform_collector import PlatformCollector
        from prometheus_client.process_collector import ProcessCollector
    except ImportError:
        raise InvalidConfig(
            "--metrics-port needs prometheus-client", field="metrics_port", hint=install("server")
        ) from None
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    registry.register(_Collector(runner, core))
    try:
        start_http_server(port, host, registry)
    except OSError as error:
        raise Unavailable(
            f"port {port} of {host} cannot be used: {error.strerror}", field="metrics_port", hint="choose another port"
        ) from None
