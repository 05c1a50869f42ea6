"""`make bench`: all measurements, a table each, and JSON.

ENGINE=redis or ARGS="--only callers" selects; ARGS=--quick is a rough measurement.
"""

from __future__ import annotations

import argparse
import platform
import sqlite3
import sys
from pathlib import Path

from rich.console import Console

from bench import callers, celery_broker, end_to_end, growth, held, idle, mariadb, policy, postgres, redis, sqs
from bench.measure import Row, show, write
from bench.peers import embedded, side_by_side

PARTS = {
    "idle": ("embedded", "At rest", idle.run),
    "end_to_end": ("embedded", "End to end, one client, 200-byte payloads, full fsync", end_to_end.run),
    "callers": ("embedded", "Single publishes of 64 callers at once, full fsync", callers.run),
    "embedded_peers": ("embedded", "Beside huey, durable against durable", embedded.run),
    "growth": ("embedded", "With millions of messages around", growth.run),
    "policy": ("embedded", "Publishes in batches of 100, with and without policies, full fsync", policy.run),
    "sqs": ("embedded", "The protocol of SQS beside the server's own verbs, batches of 10, full fsync", sqs.run),
    "postgres": ("postgres", "PostgreSQL, one client, 200-byte payloads, full fsync", postgres.run),
    "postgres_peers": ("postgres", "Others on the same PostgreSQL, no-op jobs, full fsync", side_by_side.on_postgres),
    "held": ("postgres", "PostgreSQL while a transaction is held open for ten minutes, batches of 100", held.run),
    "celery": ("redis", "Celery on tampu beside Celery on the same Redis, no-op tasks", celery_broker.run),
    "mariadb": ("mariadb", "MariaDB, one client, 200-byte payloads, full fsync", mariadb.run),
    "redis": ("redis", "Redis and Valkey, one client, 200-byte payloads, against the same driver", redis.run),
    "redis_peers": ("redis", "Others on the same Redis, no-op jobs, synced every second", side_by_side.on_redis),
}
ENGINES = sorted({engine for engine, _, _ in PARTS.values()})


def main() -> int:
    options = argparse.ArgumentParser(prog="bench", description=__doc__)
    options.add_argument("--engine", choices=ENGINES, help="only the parts of this engine")
    options.add_argument("--only", action="append", choices=PARTS, help="only this part (may be given again)")
    options.add_argument("--quick", action="store_true", help="small numbers: a rough look in under a minute")
    options.add_argument("--json", type=Path, default=Path("build/bench.json"), help="where the JSON goes")
    chosen = options.parse_args()
    console = Console()
    console.print(
        f"Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}, {platform.machine()}; ratios are of"
        " sides that ran in turns in this run; trust them, not the absolute numbers"
    )
    report: dict[str, list[Row]] = {}
    for name in chosen.only or PARTS:
        engine, title, run = PARTS[name]
        if chosen.engine not in {None, engine}:
            continue
        console.print(f"measuring {name} …")  # no spinner: its thread would be measured too
        report[name] = run(chosen.quick)
        show(console, title, report[name])
    chosen.json.parent.mkdir(parents=True, exist_ok=True)
    write(chosen.json, report)
    console.print(f"written to {chosen.json}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
