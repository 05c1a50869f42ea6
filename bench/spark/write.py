"""Rows of a DataFrame as messages, beside a bare bulk insert of the same rows into the same kind of file."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame

import tampu
import tampu.spark
from bench.measure import Row, in_turns, rate, rates, ratio_row

OURS, BARE = "write as messages", "bare bulk insert"
_COMMIT_ROWS = 10_000


def run(quick: bool) -> list[Row]:
    count, rounds = (100_000, 2) if quick else (1_000_000, 3)
    spark = tampu.spark.session()
    rows = spark.range(0, count, 1, 4).selectExpr("cast(rpad(cast(id as string), 200, 'x') as binary) payload").cache()
    rows.count()
    sides = {OURS: lambda place: _ours(rows, count, place), BARE: lambda place: _bare(rows, count, place)}
    for warm in sides.values():  # the first job of a session also starts its workers
        in_turns({"": warm}, 1)
    found = in_turns(sides, rounds)
    rows.unpersist()
    return [*rates(found), ratio_row(found, OURS, BARE, ">= 0.5")]


def _ours(rows: DataFrame, count: int, place: Path) -> float:
    url = str(place / "jobs.db")
    tampu.open(url, keepers=False).close()
    writer = rows.write.format("tampu").mode("append").options(url=url, queue="jobs")
    reached = rate(count, writer.save)
    with tampu.open(url, keepers=False) as q:
        assert q.stats("jobs").counts[tampu.State.READY] == count
    return reached


def _bare(rows: DataFrame, count: int, place: Path) -> float:
    """Each task inserts its rows by itself, in the durability that the queue has."""
    url = str(place / "jobs.db")
    with tampu.open(url, keepers=False):
        pass
    db = sqlite3.connect(url)
    db.execute("CREATE TABLE bare (id INTEGER PRIMARY KEY, payload BLOB NOT NULL)")
    db.close()

    def insert(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import fcntl

        db = sqlite3.connect(url, isolation_level=None, timeout=60)
        db.execute("PRAGMA synchronous = FULL")
        db.execute("PRAGMA wal_autocheckpoint = 4000")
        # Tasks wait for each other at a lock of the system: SQLite's own wait sleeps too long and would slow them down.
        with Path(f"{url}-turn").open("w") as turn:
            for batch in batches:
                assert len(batch) <= _COMMIT_ROWS
                values = [(value,) for value in batch[0].to_pylist()]
                fcntl.flock(turn, fcntl.LOCK_EX)
                db.execute("BEGIN IMMEDIATE")
                db.executemany("INSERT INTO bare (payload) VALUES (?)", values)
                db.execute("COMMIT")
                fcntl.flock(turn, fcntl.LOCK_UN)
        db.close()
        yield pa.record_batch([pa.array([1], pa.int32())], names=["done"])

    reached = rate(count, rows.mapInArrow(insert, "done int").count)
    db = sqlite3.connect(url)
    assert db.execute("SELECT count(*) FROM bare").fetchone() == (count,)
    db.close()
    return reached


if __name__ == "__main__":
    began = time.perf_counter()
    for row in run(quick=False):
        print(row)
    print(f"{time.perf_counter() - began:.0f} s")
