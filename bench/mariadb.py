"""MariaDB with full fsync: one client publishes, claims and acks batches; claims from a long backlog; bulk publish.

The ceiling is the least a loop with the same driver and durability can do: one table, rows inserted by one statement,
marked as claimed with SKIP LOCKED, deleted when they are acked; three commits, nothing else.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import tampu
from bench.measure import PAYLOAD, Row, in_turns, rate, rates, ratio_row
from tests.servers.mariadb import MariaDb

WARM_UP = 50
SETTINGS = {"innodb_buffer_pool_size": "1G", "innodb_log_file_size": "1G"}
_CEILING = """
CREATE OR REPLACE TABLE ceiling (
  id bigint AUTO_INCREMENT PRIMARY KEY, until bigint NOT NULL DEFAULT 0, payload blob, KEY ready (until, id))
"""
_HEAD = "SELECT id, payload FROM ceiling WHERE until = 0 ORDER BY id LIMIT %s FOR UPDATE SKIP LOCKED"


def ceiling(_: Path, server: MariaDb, count: int, batch: int) -> float:
    with server.connect("tampu", binary_prefix=True) as db, db.cursor() as cursor:
        cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
        cursor.execute(_CEILING)

        def work(count: int = count) -> None:
            for _ in range(0, count, batch):
                cursor.executemany("INSERT INTO ceiling (payload) VALUES (%s)", [(PAYLOAD,)] * batch)
                db.begin()
                cursor.execute(_HEAD, (batch,))
                ids = ",".join([str(id) for id, _ in cursor.fetchall()])
                cursor.execute(f"UPDATE ceiling SET until = 1 WHERE id IN ({ids})")
                db.commit()
                cursor.execute(f"DELETE FROM ceiling WHERE id IN ({ids})")

        work(WARM_UP * batch)
        return rate(count, work)


@contextlib.contextmanager
def opened(server: MariaDb, **options: str) -> Iterator[tampu.Store]:
    """A store in its own database, dropped afterwards."""
    name = f"bench_{time.monotonic_ns()}"
    with server.connect() as db, db.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {name}")
        with tampu.open(server.url(name, **options)) as store:
            yield store
        cursor.execute(f"DROP DATABASE {name}")


def ours(_: Path, server: MariaDb, count: int, batch: int) -> float:
    with opened(server) as store:

        def work(count: int = count) -> None:
            for _ in range(0, count, batch):
                store.publish_many("bench", [PAYLOAD] * batch)
                leases = store.claim("bench", limit=batch)
                store.settle([tampu.Ack(lease) for lease in leases])

        work(WARM_UP * batch)
        return rate(count, work)


def _bulk(_: Path, server: MariaDb, count: int) -> float:
    with opened(server) as store:
        return rate(count, lambda: [store.publish_many("bench", [PAYLOAD] * 1000) for _ in range(0, count, 1000)])


def _insert(_: Path, server: MariaDb, count: int) -> float:
    """Plain inserts of the same columns that a message has."""
    with server.connect("tampu", binary_prefix=True) as db, db.cursor() as cursor:
        cursor.execute(
            "CREATE OR REPLACE TABLE inserted"
            " (seq bigint PRIMARY KEY, created bigint, place bigint, q int, most int, body longblob)"
        )

        def work() -> None:
            for start in range(0, count, 1000):
                rows = [(n, 0, 0, 1, 5, PAYLOAD) for n in range(start, start + 1000)]
                cursor.executemany("INSERT INTO inserted VALUES (%s, %s, %s, %s, %s, %s)", rows)

        return rate(count, work)


def _claim_seconds(store: tampu.Store, rounds: int) -> float:
    times = []
    for _ in range(rounds):
        store.publish_many("bench", [PAYLOAD] * 100)
        began = time.perf_counter()
        leases = store.claim("bench", limit=100)
        times.append(time.perf_counter() - began)
        store.settle([tampu.Ack(lease) for lease in leases])
    return statistics.median(times)


def _growth(server: MariaDb, million: int, rounds: int) -> list[Row]:
    with opened(server) as full, opened(server) as empty:
        for _ in range(0, million, 10_000):
            full.publish_many("bench", [PAYLOAD] * 10_000)
        for store in (full, empty):
            _claim_seconds(store, rounds)
        pairs = []
        for turn in range(6):
            first, second = (full, empty) if turn % 2 else (empty, full)
            one, two = _claim_seconds(first, rounds), _claim_seconds(second, rounds)
            pairs.append(one / two if first is full else two / one)
    note = f"{min(pairs):.2f} to {max(pairs):.2f}"
    return [Row(f"claim of 100 with {million:,} ready / empty", statistics.median(pairs), "ratio", "≤ 1.10", note)]


def run(quick: bool) -> list[Row]:
    count, rounds = (5_000, 3) if quick else (30_000, 7)
    rows = []
    with MariaDb(SETTINGS) as server:
        for batch, part, target in ((100, 1, "≥ 0.50"), (1, 20, ""), (1000, 1, "")):
            found = in_turns(
                {
                    f"tampu, batch {batch}": partial(ours, server=server, count=count // part, batch=batch),
                    f"ceiling, batch {batch}": partial(ceiling, server=server, count=count // part, batch=batch),
                },
                rounds if batch == 100 else 3,
            )
            rows += rates(found)
            rows.append(ratio_row(found, f"tampu, batch {batch}", f"ceiling, batch {batch}", target))
        found = in_turns(
            {
                "bulk publish": partial(_bulk, server=server, count=count),
                "plain inserts": partial(_insert, server=server, count=count),
            },
            3,
        )
        rows += rates(found)
        rows.append(ratio_row(found, "bulk publish", "plain inserts", ""))
        rows += _growth(server, 50_000 if quick else 1_000_000, 15 if quick else 60)
    return rows
