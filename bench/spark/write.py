"""Rows of a DataFrame as messages, compared with a bare bulk insert of the same rows into the same kind of store."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

import tampu
import tampu.spark
from bench.measure import Row, Side, in_turns, rate, rates, ratio_row
from bench.spark.stores import store

OURS = "write as messages"
_COMMIT_ROWS = 10_000
_COMMAND_ROWS = 1_000


def run(quick: bool, engine: str) -> list[Row]:
    count, rounds = (100_000, 2) if quick else (1_000_000, 3)
    spark = tampu.spark.session()
    rows = spark.range(0, count, 1, 4).selectExpr("cast(rpad(cast(id as string), 200, 'x') as binary) payload").cache()
    rows.count()
    sides: dict[str, Side] = {OURS: lambda place: _ours(rows, count, engine, place)}
    for name, insert in _BARE[engine].items():
        sides[name] = lambda place, insert=insert: _timed(engine, place, lambda url: insert(rows, count, url))  # type: ignore[misc]  # mypy knows no defaults of lambdas
    for warm in sides.values():  # the first job of a session also starts its workers
        in_turns({"": warm}, 1)
    found = in_turns(sides, rounds)
    rows.unpersist()
    return [*rates(found), *(ratio_row(found, OURS, name, ">= 0.5") for name in _BARE[engine])]


def _timed(engine: str, place: Path, work: Callable[[str], float]) -> float:
    with store(engine, place) as url:
        return work(url)


def _ours(rows: DataFrame, count: int, engine: str, place: Path) -> float:
    def work(url: str) -> float:
        tampu.open(url, maintenance=False).close()
        writer = rows.write.format("tampu").mode("append").options(url=url, queue="jobs")
        reached = rate(count, writer.save)
        with tampu.open(url, maintenance=False) as store:
            assert store.stats("jobs").counts[tampu.State.READY] == count
        return reached

    return _timed(engine, place, work)


def _copied(rows: DataFrame, count: int, url: str) -> float:
    """Each task copies its own rows into PostgreSQL."""

    def insert(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import psycopg

        text = "COPY bare (payload) FROM STDIN (FORMAT binary)"
        with psycopg.connect(url) as db, db.cursor() as cursor, cursor.copy(text) as copy:
            copy.set_types(["bytea"])
            for batch in batches:
                for value in batch[0].to_pylist():
                    copy.write_row((value,))
        yield pa.record_batch([pa.array([1], pa.int32())], names=["done"])

    return _into_postgres(rows, count, url, insert)


def _ingested(rows: DataFrame, count: int, url: str) -> float:
    """The same by ADBC, which makes the bytes of COPY out of Arrow in C."""

    def insert(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import adbc_driver_postgresql.dbapi as adbc  # type: ignore[import-untyped]  # it has no types

        with adbc.connect(url) as db, db.cursor() as cursor:
            for batch in batches:
                cursor.adbc_ingest("bare", batch, mode="append")
            db.commit()
        yield pa.record_batch([pa.array([1], pa.int32())], names=["done"])

    return _into_postgres(rows, count, url, insert)


def _into_postgres(rows: DataFrame, count: int, url: str, insert: Any) -> float:
    import psycopg

    with psycopg.connect(url, autocommit=True) as db:
        db.execute("CREATE TABLE bare (id int8 GENERATED ALWAYS AS IDENTITY PRIMARY KEY, payload bytea NOT NULL)")
        reached = rate(count, rows.mapInArrow(insert, "done int").count)
        assert db.execute("SELECT count(*) FROM bare").fetchone() == (count,)
    return reached


def _pushed(rows: DataFrame, count: int, url: str) -> float:
    """Each task appends its rows to one list of Redis, a thousand with each command: the least that keeps an order."""

    def insert(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import redis

        with redis.Redis.from_url(url) as db:
            for batch in batches:
                values = batch[0].to_pylist()
                for start in range(0, len(values), _COMMAND_ROWS):
                    db.rpush("bare", *values[start : start + _COMMAND_ROWS])
        yield pa.record_batch([pa.array([1], pa.int32())], names=["done"])

    return _into_redis(rows, count, url, insert, lambda db: db.llen("bare"))


def _set(rows: DataFrame, count: int, url: str) -> float:
    """Each row under its own key, a thousand per round trip: messages must be found by their ids."""

    def insert(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import redis

        with redis.Redis.from_url(url) as db:
            for batch in batches:
                values = batch[0].to_pylist()
                for start in range(0, len(values), _COMMAND_ROWS):
                    with db.pipeline(transaction=False) as pipe:
                        for value in values[start : start + _COMMAND_ROWS]:
                            pipe.set(b"bare:" + value[:12], value)
                        pipe.execute()
        yield pa.record_batch([pa.array([1], pa.int32())], names=["done"])

    return _into_redis(rows, count, url, insert, lambda db: db.dbsize())


def _into_redis(rows: DataFrame, count: int, url: str, insert: Any, size: Callable[[Any], Any]) -> float:
    import redis

    reached = rate(count, rows.mapInArrow(insert, "done int").count)
    with redis.Redis.from_url(url) as db:
        assert size(db) == count
    return reached


def _simple(rows: DataFrame, count: int, url: str) -> float:
    """Each task inserts its own rows, with the durability of the store."""
    with tampu.open(url, maintenance=False):
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


_BARE: dict[str, dict[str, Callable[[DataFrame, int, str], float]]] = {
    "file": {"bare bulk insert": _simple},
    "postgres": {"bare COPY": _copied, "bare ADBC ingest": _ingested},
    "redis": {"bare RPUSH": _pushed, "bare SET": _set},
}


if __name__ == "__main__":
    began = time.perf_counter()
    for row in run(quick=False, engine="file"):
        print(row)
    print(f"{time.perf_counter() - began:.0f} s")
