"""What `insights.gather` finds, as plain values; the terminal, the report and `--json` show these."""

from __future__ import annotations

from datetime import date, datetime

import msgspec

from tampu.lake.insights.clustering import Cluster
from tampu.lake.insights.forecast import Drain, HourOfWeek


class Totals(msgspec.Struct, frozen=True):
    published: int = 0
    done: int = 0
    failed: int = 0
    dead: int = 0
    ended: int = 0
    depth: int = 0
    queues: int = 0
    run_seconds: float = 0.0
    wait_p95: float | None = None
    run_p95: float | None = None
    failure_ratio: float | None = None


class Series(msgspec.Struct, frozen=True):
    """Values by step of time, all lists as long as ``at``."""

    step: int
    at: list[datetime]
    published: list[int]
    done: list[int]
    failed: list[int]
    dead: list[int]
    depth: list[int]
    wait_p50: list[float | None]
    wait_p95: list[float | None]
    wait_p99: list[float | None]


class QueueLine(msgspec.Struct, frozen=True):
    tenant: str
    queue: str
    published: int
    ended: int
    failed: int
    dead: int
    failure_ratio: float | None
    wait_p95: float | None
    run_p95: float | None
    depth: int
    oldest: float | None
    drain: Drain
    published_by_step: list[int]


class TaskLine(msgspec.Struct, frozen=True):
    tenant: str
    queue: str
    type: str
    deliveries: int
    failed: int
    dead: int
    run_p50: float | None
    run_p95: float | None
    run_p99: float | None


class WorkerLine(msgspec.Struct, frozen=True):
    tenant: str
    worker: str
    deliveries: int
    done: int
    failed: int
    lost: int
    run_seconds: float
    run_p95: float | None
    last_at: datetime | None


class SloLine(msgspec.Struct, frozen=True):
    tenant: str
    queue: str
    objective: str
    target: float | None
    within: float | None
    good: int
    total: int
    ratio: float | None
    burn: float | None
    days: list[tuple[date, float | None]]

    @property
    def missed(self) -> bool:
        """Were there more bad ones than the target allows?"""
        return self.ratio is not None and self.target is not None and self.ratio < self.target


class TenantLine(msgspec.Struct, frozen=True):
    tenant: str
    published: int
    deliveries: int
    done: int
    dead: int
    run_seconds: float
    payload_bytes: int


class OwnLine(msgspec.Struct, frozen=True):
    """A table that a user added."""

    table: str
    about: str
    rows: int
    """Of the period."""
    newest: date | None


class Insights(msgspec.Struct, frozen=True, kw_only=True):
    lake: str
    tenant: str | None
    days: int
    since: datetime
    until: datetime
    empty: bool
    totals: Totals
    series: Series
    queues: list[QueueLine]
    failures: list[Cluster]
    tasks: list[TaskLine]
    workers: list[WorkerLine]
    slo: list[SloLine]
    week: list[HourOfWeek]
    tenants: list[TenantLine]
    own: list[OwnLine]

    @property
    def several_tenants(self) -> bool:
        return len(self.tenants) > 1
