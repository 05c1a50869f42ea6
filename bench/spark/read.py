"""A snapshot of ended messages against `spark.read.parquet` of the same rows, and how fast the journal is read.

All sides end in the `noop` sink, which takes every column of every row and keeps nothing.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import statistics
from pathlib import Path
from typing import TYPE_CHECKING

import tampu
import tampu.spark
from bench.measure import Row, folder, rate, ratio_row

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BATCH = 100
TEXT = "x" * 170


def fill(place: Path, count: int) -> None:
    """So many messages that were published, claimed and acked by the hundred: three transitions each."""
    with tampu.open(f"sqlite:///{place}/jobs.db?durability=process", keepers=False) as q:
        for start in range(0, count, BATCH):
            news = [
                tampu.NewMessage({"order": i, "text": TEXT}, type="order.placed") for i in range(start, start + BATCH)
            ]
            q.publish_many("orders", news)
            q.settle([tampu.Ack(lease) for lease in q.claim("orders", limit=BATCH, worker="w1")])


def _noop(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def run(quick: bool) -> list[Row]:
    return measure(100_000, 3) if quick else measure(1_000_000, 5)


def measure(count: int, rounds: int) -> list[Row]:
    with folder() as place:
        filling = multiprocessing.get_context("spawn").Process(target=fill, args=(place, count))
        filling.start()
        filling.join()
        if filling.exitcode:
            raise RuntimeError("the store could not be filled")
        spark = tampu.spark.session("local[2]", name="bench-read")
        read = spark.read.format("tampu").option("url", str(place / "jobs.db"))
        read.load().write.parquet(str(place / "same"))
        os.sync()  # what the filling left to be written must not be measured
        same = spark.read.parquet(str(place / "same"))
        # A rate is the expected number by the time: it means something only if that many rows are there.
        there = (same.count(), read.load().count(), read.option("kind", "journal").load().count())
        if there != (count, count, 3 * count):
            raise RuntimeError(f"expected {count} messages with three transitions each, found {there}")
        sides = {
            "snapshot": (count, lambda: _noop(read.option("kind", "messages").load())),
            "parquet": (count, lambda: _noop(same)),
            "journal to noop": (3 * count, lambda: _noop(read.option("kind", "journal").load())),
            "journal to Parquet": (3 * count, lambda: _journal_to_parquet(spark, place)),
        }
        for _, work in sides.values():
            work()
        names = list(sides)
        found: dict[str, list[float]] = {name: [] for name in names}
        for turn in range(rounds):
            for name in names[turn % len(names) :] + names[: turn % len(names)]:
                found[name].append(rate(*sides[name]))
        spark.stop()
    rows = [ratio_row(found, "snapshot", "parquet", "≥ 0.5")]
    rows += [Row(name, statistics.median(found[name]), "messages/s") for name in ("snapshot", "parquet")]
    return rows + [
        Row(name, statistics.median(found[name]), "transitions/s", "≥ 300 k")
        for name in ("journal to noop", "journal to Parquet")
    ]


def _journal_to_parquet(spark, place: Path) -> None:
    out = place / "events"
    shutil.rmtree(out, ignore_errors=True)
    spark.read.format("tampu").option("url", str(place / "jobs.db")).option("kind", "journal").load().write.parquet(
        str(out)
    )
