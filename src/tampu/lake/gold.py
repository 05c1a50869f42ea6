"""Gold: the numbers people look at, of one tenant and one day at a time.

A day is computed anew from bronze and silver whenever a run touches it, so a run that is repeated, or that brings late
events, leaves the same rows as one that saw everything at once. What each table counts is said beside its columns in
`tampu.lake.tables` and in docs/reference/lake-tables.md.

All tables are in files by day and tenant, so a tenant's day needs nothing that is elsewhere: no shuffle, one task.
Events are counted as they are read; of each delivery some eighty bytes are held.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import date, datetime
from typing import NamedTuple

import pyarrow as pa

from tampu.lake import gold_days, gold_failures, gold_minutes, gold_slo
from tampu.lake.gold_read import Attempts, Ended, Events
from tampu.lake.objectives import Objective
from tampu.lake.tables import TABLES

NAMES = tuple(table.name for table in TABLES if table.name.startswith("gold."))

EVENTS = ("at", "queue", "verb", "state", "id", "partition", "offset", "detail", "fingerprint")
ATTEMPTS = ("queue", "type", "worker", "outcome", "fingerprint", "wait", "run", "claimed_at", "ended_at")
MESSAGES = ("queue", "type", "state", "deliveries", "total", "payload_bytes", "result_bytes")
STAYS = ("queue", "ready_at", "left_at")
WAITING = ("queue", "ready_at")
"""The columns that are read."""

Batches = Iterable[pa.RecordBatch]


class Day(NamedTuple):
    """What there is of a tenant's day; see the columns above."""

    day: date
    tenant: str
    events: Batches
    attempts: Batches
    messages: Batches
    stays: Batches
    """Closed stays in ready of the tenant that ended on this day or later."""
    waiting: Batches
    """What is ready now."""
    until: datetime
    """The time of the newest event of all; what is ready then is ready in every minute up to it."""


def compute(it: Day, objectives: Sequence[Objective] = ()) -> Iterator[tuple[str, pa.Table]]:
    """The rows of every gold table."""
    events = Events(it.day, it.events)
    attempts = Attempts(it.day, it.attempts)
    ended = Ended(it.messages)
    ready = gold_minutes.Ready(it.day, it.stays, it.waiting, it.until)
    own = {"day": it.day, "tenant": it.tenant}
    yield "gold.queue_minutes", gold_minutes.queue_minutes(own, events, attempts, ready)
    yield "gold.failures", gold_failures.failures(own, events, attempts)
    yield "gold.tenant_days", gold_days.tenant_days(own, events, attempts, ended)
    yield "gold.workers", gold_days.workers(own, attempts)
    yield "gold.tasks", gold_days.tasks(own, attempts, ended)
    yield "gold.slo", gold_slo.slo(own, ended, objectives)
