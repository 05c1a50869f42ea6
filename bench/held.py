"""PostgreSQL while a transaction stays open: deleted rows cannot be removed meanwhile.

One client publishes, claims and acks batches of 100, full fsync; first alone, then for ten minutes beside an idle
transaction with an old snapshot, then after its end.
"""

from __future__ import annotations

import time

import psycopg

import tampu
from bench.measure import PAYLOAD, Row
from bench.postgres import opened
from tests.servers.postgres import Postgres


def _flow(store: tampu.Store, seconds: float) -> tuple[int, float]:
    """Messages that passed, and the rate."""
    passed, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        store.publish_many("bench", [PAYLOAD] * 100)
        passed += len(store.settle([tampu.Ack(lease) for lease in store.claim("bench", limit=100)]))
    return passed, passed / (time.perf_counter() - began)


def run(quick: bool) -> list[Row]:
    alone, slice_, slices = (5, 5, 6) if quick else (60, 60, 10)
    with Postgres({"shared_buffers": "1GB", "max_wal_size": "4GB"}) as server, opened(server) as store:
        _flow(store, alone / 2)
        before = _flow(store, alone)[1]
        rows = [Row("before", before, "messages/s")]
        with psycopg.connect(server.url()) as other:
            other.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            other.execute("SELECT 1")
            total = 0
            for n in range(1, slices + 1):
                passed, rate = _flow(store, slice_)
                total += passed
                rows.append(
                    Row(f"held, after {n * slice_} s / before", rate / before, "ratio", "", f"{total:,} passed")
                )
            other.rollback()
        rows.append(Row("after its end / before", _flow(store, alone)[1] / before, "ratio"))
    return rows
