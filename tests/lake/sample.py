"""A sample lake, written from plain rows without Spark, for the tests of what reads a lake."""

import random
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake

from tampu.lake.tables import BY_NAME, PARTITION_BY

START = datetime(2026, 3, 2, tzinfo=UTC)
"""A Monday."""
_DAY_OF = {
    "bronze.events": "at", "bronze.messages": "ended_at", "silver.messages": "ended_at", "silver.attempts": "ended_at",
    "gold.queue_minutes": "minute", "gold.failures": "last_at", "gold.workers": "last_at",
}  # fmt: skip


def write(lake: Path, name: str, rows: Iterable[dict[str, Any]], *, leave_out: tuple[str, ...] = ()) -> None:
    """Append rows; what they do not say is null, the tenant is ``default`` and the day comes from the time."""
    table = BY_NAME[name]
    whole = []
    for row in rows:
        at = row.get(_DAY_OF.get(name, "day"))
        day = row.get("day") or (at.date() if isinstance(at, datetime) else START.date())
        whole.append({"tenant": "default", **row, "day": day})
    schema = pa.schema([field for field in table.schema if field.name not in leave_out])
    write_deltalake(
        lake / table.path, pa.Table.from_pylist(whole, schema=schema), partition_by=list(PARTITION_BY), mode="append"
    )


def ended(n: int, **more: Any) -> dict[str, Any]:
    """A row of bronze.messages: the n-th message, dead, one a minute."""
    return {
        "id": f"00000000-0000-7000-8000-{n:012d}", "queue": "orders", "state": "dead", "type": "order.place",
        "payload": b'{"n":%d}' % n, "content_type": "application/json", "priority": 0, "attempts": 3,
        "max_attempts": 3, "created_at": START, "ended_at": START + timedelta(minutes=n), "missing": False,
        "last_error": f"ValueError: no {n}", "ended_partition": "0", "ended_offset": 10 * n, **more,
    }  # fmt: skip


def minute(n: int, queue: str = "orders", **more: Any) -> dict[str, Any]:
    """A row of gold.queue_minutes: n minutes after the start."""
    counts = dict.fromkeys(
        ("published", "claimed", "done", "failed", "dead", "cancelled", "expired", "released", "replayed", "depth"), 0
    )
    return {"queue": queue, "minute": START + timedelta(minutes=n), **counts, **more}


def busy(lake: Path, *, days: int = 8, seed: int = 7, error: str = "TimeoutError: no answer from 10.0.0.7") -> None:
    """A lake with something in every table that the insights show."""
    dice = random.Random(seed)
    minutes, attempts, failures, tasks, workers, slo, used = [], [], [], [], [], [], []
    for queue, size in (("orders", 30), ("emails", 12), ("reports", 2)):
        depth = 0
        for n in range(0, days * 1440, 10):
            hour = n // 60 % 24
            came = round(size * (1.5 if 8 <= hour <= 18 else 0.4) * dice.uniform(0.6, 1.4))
            went = min(depth + came, round(size * (0.9 if queue == "emails" else 1.3) * dice.uniform(0.8, 1.2)))
            lost = went // 20
            depth += came - went
            minutes.append(
                minute(n, queue, published=came, claimed=went, done=went - lost, dead=lost, failed=lost * 3,
                       depth=depth, oldest=float(depth) if depth else None, in_rate=came / 60, out_rate=went / 60)
            )  # fmt: skip
            for k in range(went // 10 + 1):
                at = START + timedelta(minutes=n, seconds=dice.random() * 600)
                run = dice.expovariate(1 / (size / 10))
                attempts.append(
                    {"id": f"{queue}-{n}-{k}", "queue": queue, "type": f"{queue}.run", "attempt": 1, "ready_at": at,
                     "claimed_at": at, "ended_at": at, "wait": dice.expovariate(0.5) + depth / 50, "run": run,
                     "worker": f"worker-{k % 3}", "outcome": "nack" if k % 20 == 19 else "ack"}
                )  # fmt: skip
        for day in range(days):
            at = START + timedelta(days=day, hours=12)
            failures.append(
                {"queue": queue, "fingerprint": f"f-{queue}", "error": error, "attempts": 9, "messages": 4, "dead": day,
                 "types": [f"{queue}.run"], "first_at": at, "last_at": at, "sample_ids": [f"{queue}-{day}"]}
            )  # fmt: skip
            tasks.append(
                {"queue": queue, "type": f"{queue}.run", "deliveries": 900, "done": 880, "failed": 20, "dead": 3,
                 "failure_ratio": 20 / 900, "run_p95": size / 10, "day": at.date()}
            )  # fmt: skip
            good = 990 + dice.randrange(10)
            slo.append(
                {"queue": queue, "objective": "success", "target": 0.99, "good": good, "total": 1000,
                 "ratio": good / 1000, "burn": (1 - good / 1000) / 0.01, "day": at.date()}
            )  # fmt: skip
    for day in range(days):
        at = START + timedelta(days=day, hours=12)
        used.append({"published": 4000, "deliveries": 4100, "done": 3900, "dead": 40, "run_seconds": 9000.0,
                     "queues": 3, "day": at.date()})  # fmt: skip
        workers += [
            {"worker": f"worker-{n}", "deliveries": 900, "done": 880, "failed": 18, "lost": 2, "released": 0,
             "run_seconds": 3000.0, "run_p95": 4.0, "first_at": at, "last_at": at}
            for n in range(3)
        ]  # fmt: skip
    for name, rows in {
        "gold.queue_minutes": minutes, "silver.attempts": attempts, "gold.failures": failures, "gold.tasks": tasks,
        "gold.workers": workers, "gold.slo": slo, "gold.tenant_days": used,
    }.items():  # fmt: skip
        write(lake, name, rows)
