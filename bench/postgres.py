"""PostgreSQL with full fsync: one client publishes, claims and acks batches; claims from a long backlog; bulk publish.

The ceiling is the least a loop with the same driver and durability can do: one table, rows inserted from an array,
marked as claimed with SKIP LOCKED, deleted when they are acked; three commits, nothing else.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import psycopg

import tampu
from bench.measure import PAYLOAD, Row, in_turns, rate, rates, ratio_row
from tests.servers.postgres import Postgres

WARM_UP = 50
_CEILING = """
DROP TABLE IF EXISTS ceiling;
CREATE TABLE ceiling (id int8 GENERATED ALWAYS AS IDENTITY PRIMARY KEY, until timestamptz, payload bytea)
  WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 5000);
CREATE INDEX ceiling_ready ON ceiling (id) WHERE until IS NULL
"""
_INSERT = "INSERT INTO ceiling (payload) SELECT unnest(%b::bytea[])"
_CLAIM = """
UPDATE ceiling SET until = now() + interval '30 s' WHERE id = ANY (ARRAY(
  SELECT id FROM ceiling WHERE until IS NULL ORDER BY id LIMIT %s FOR UPDATE SKIP LOCKED)) RETURNING id, payload
"""
_ACK = "DELETE FROM ceiling WHERE id = ANY (%b)"


def ceiling(_: Path, url: str, count: int, batch: int) -> float:
    with psycopg.connect(url, autocommit=True, prepare_threshold=0) as db:
        for statement in _CEILING.split(";"):
            db.execute(statement)
        cursor = db.cursor(binary=True)

        def work(count: int = count) -> None:
            for _ in range(0, count, batch):
                cursor.execute(_INSERT, ([PAYLOAD] * batch,))
                rows = cursor.execute(_CLAIM, (batch,)).fetchall()
                cursor.execute(_ACK, ([row[0] for row in rows],))

        work(WARM_UP * batch)
        return rate(count, work)


@contextlib.contextmanager
def opened(server: Postgres) -> Iterator[tampu.Store]:
    """A store in its own schema, dropped afterwards."""
    schema = f"bench_{time.monotonic_ns()}"
    with tampu.open(server.url(schema=schema)) as store:
        yield store
    with psycopg.connect(server.url(), autocommit=True) as db:
        db.execute(f"DROP SCHEMA {schema} CASCADE")


def ours(_: Path, server: Postgres, count: int, batch: int) -> float:
    with opened(server) as store:

        def work(count: int = count) -> None:
            for _ in range(0, count, batch):
                store.publish_many("bench", [PAYLOAD] * batch)
                leases = store.claim("bench", limit=batch)
                store.settle([tampu.Ack(lease) for lease in leases])

        work(WARM_UP * batch)
        return rate(count, work)


def _bulk(_: Path, server: Postgres, count: int) -> float:
    with opened(server) as store:
        return rate(count, lambda: [store.publish_many("bench", [PAYLOAD] * 1000) for _ in range(0, count, 1000)])


def _copy(_: Path, url: str, count: int) -> float:
    """COPY of the same columns that a message has."""
    with psycopg.connect(url, autocommit=True) as db:
        db.execute("DROP TABLE IF EXISTS copied")
        db.execute("CREATE TABLE copied (seq int8 PRIMARY KEY, created int8, rank int8, q int, most int, body bytea)")

        def work() -> None:
            for start in range(0, count, 1000):
                with db.cursor().copy("COPY copied FROM STDIN (FORMAT binary)") as copy:
                    copy.set_types(["int8", "int8", "int8", "int4", "int4", "bytea"])
                    for n in range(start, start + 1000):
                        copy.write_row((n, 0, 0, 1, 5, PAYLOAD))

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


def _growth(server: Postgres, million: int, rounds: int) -> list[Row]:
    with opened(server) as full, opened(server) as empty:
        for _ in range(0, million, 10_000):
            full.publish_many("bench", [PAYLOAD] * 10_000)
        with psycopg.connect(server.url(), autocommit=True) as db:  # what the filling left to be done is not measured
            db.execute("VACUUM (ANALYZE)")
            db.execute("CHECKPOINT")
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
    with Postgres({"shared_buffers": "1GB", "max_wal_size": "4GB"}) as server:
        for batch, part, target in ((100, 1, "≥ 0.50"), (1, 20, ""), (1000, 1, "")):
            found = in_turns(
                {
                    f"tampu, batch {batch}": partial(ours, server=server, count=count // part, batch=batch),
                    f"ceiling, batch {batch}": partial(ceiling, url=server.url(), count=count // part, batch=batch),
                },
                rounds if batch == 100 else 3,
            )
            rows += rates(found)
            rows.append(ratio_row(found, f"tampu, batch {batch}", f"ceiling, batch {batch}", target))
        found = in_turns(
            {
                "bulk publish": partial(_bulk, server=server, count=count),
                "COPY": partial(_copy, url=server.url(), count=count),
            },
            3,
        )
        rows += rates(found)
        rows.append(ratio_row(found, "bulk publish", "COPY", ""))
        rows += _growth(server, 50_000 if quick else 1_000_000, 15 if quick else 60)
    return rows
