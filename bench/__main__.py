"""`make bench`: all measurements, a table each, and JSON. ARGS="--only callers" chooses, --quick is a rough look."""

from __future__ import annotations

import argparse
import platform
import sqlite3
import sys
from pathlib import Path

from rich.console import Console

from bench import callers, end_to_end, growth, idle, peers, postgres, redis
from bench.measure import Row, show, write

PARTS = {
    "idle": ("At rest", idle.run),
    "end_to_end": ("End to end, one client, 200-byte payloads, full fsync", end_to_end.run),
    "callers": ("Single publishes of 64 callers at once, full fsync", callers.run),
    "peers": ("Beside huey, durable against durable", peers.run),
    "growth": ("With millions of messages around", growth.run),
    "postgres": ("PostgreSQL, one client, 200-byte payloads, full fsync", postgres.run),
    "redis": ("Redis and Valkey, one client, 200-byte payloads, against the same driver", redis.run),
}


def main() -> int:
    options = argparse.ArgumentParser(prog="bench", description=__doc__)
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
        title, run = PARTS[name]
        console.print(f"measuring {name} …")  # no spinner: its thread would be measured too
        report[name] = run(chosen.quick)
        show(console, title, report[name])
    chosen.json.parent.mkdir(parents=True, exist_ok=True)
    write(chosen.json, report)
    console.print(f"written to {chosen.json}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
