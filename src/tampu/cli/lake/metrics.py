"""Numbers of the pipeline for Prometheus, on a port of its own."""

from __future__ import annotations

import time

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server

from tampu.lake.lineage import RunReport
from tampu.model.errors import InvalidConfig, Unavailable

_LAST_PORT = 65_535


class Metrics:
    def __init__(self, reader: str) -> None:
        self.registry = CollectorRegistry()
        label = ["reader"]
        self._lag_messages = Gauge(
            "tampu_pipeline_lag_messages", "Transitions that the lake has not got", label, registry=self.registry
        ).labels(reader)
        self._lag_seconds = Gauge(
            "tampu_pipeline_lag_seconds", "Age of the oldest of them", label, registry=self.registry
        ).labels(reader)
        self._rows = Counter(
            "tampu_pipeline_rows_total", "Rows written, by table", ["reader", "table"], registry=self.registry
        )
        self._rate = Gauge(
            "tampu_pipeline_rows_per_second", "Transitions per second of the last run", label, registry=self.registry
        ).labels(reader)
        self._seconds = Histogram(
            "tampu_pipeline_run_seconds",
            "How long runs took",
            label,
            buckets=(0.1, 1, 3, 10, 30, 100, 300, 1000),
            registry=self.registry,
        ).labels(reader)
        self._success = Gauge(
            "tampu_pipeline_last_success",
            "When a run last ended well, in seconds since 1970",
            label,
            registry=self.registry,
        ).labels(reader)
        self._failures = Counter(
            "tampu_pipeline_failures_total", "Runs that failed", label, registry=self.registry
        ).labels(reader)
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
                f"metrics can not be served on {where}: {error.strerror}",
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
