"""Numbers of the pipeline for Prometheus, on a port of its own."""

from __future__ import annotations

import time
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server

from tampu.lake.lineage import RunReport
from tampu.model.errors import InvalidConfig, Unavailable

_LAST_PORT = 65_535


class Metrics:
    def __init__(self, reader: str) -> None:
        self.registry = registry = CollectorRegistry()

        def made(kind: Any, name: str, about: str, **more: Any) -> Any:
            return kind(f"tampu_pipeline_{name}", about, ["reader"], registry=registry, **more).labels(reader)

        self._lag_messages = made(Gauge, "lag_messages", "Transitions that the lake has not got")
        self._lag_seconds = made(Gauge, "lag_seconds", "Age of the oldest of them")
        self._rows = Counter(
            "tampu_pipeline_rows_total", "Rows written, by table", ["reader", "table"], registry=registry
        )
        self._rate = made(Gauge, "rows_per_second", "Transitions per second of the last run")
        self._seconds = made(
            Histogram, "run_seconds", "How long runs took", buckets=(0.1, 1, 3, 10, 30, 100, 300, 1000)
        )
        self._success = made(Gauge, "last_success", "When a run last ended well, in seconds since 1970")
        self._failures = made(Counter, "failures_total", "Runs that failed")
        self._reader = reader

    def serve(self, where: str) -> int:
        """Answer on a port of this machine, or on ADDRESS:PORT; the port that was taken."""
        address, _, port = where.rpartition(":")
        if not port.isdigit() or int(port) > _LAST_PORT:
            raise InvalidConfig(f"{where!r:.60} is no port", field="metrics_port", hint="9464, or 0.0.0.0:9464")
        try:
            server, _ = start_http_server(int(port), address or "127.0.0.1", self.registry)
        except OSError as error:
            raise Unavailable(
                f"metrics cannot be served on {where}: {error.strerror}",
                field="metrics_port",
                hint="choose another --metrics-port",
            ) from None
        return int(server.server_port)

    def lag(self, messages: int, seconds: float) -> None:
        self._lag_messages.set(messages)
        self._lag_seconds.set(seconds)

    def ran(self, report: RunReport) -> None:
        self._success.set(time.time())
        self._seconds.observe(report.took)
        if report.news:
            self._rate.set(report.transitions / max(report.took, 1e-9))
            for table, count in report.rows.items():
                self._rows.labels(self._reader, table).inc(count)

    def failed(self) -> None:
        self._failures.inc()
