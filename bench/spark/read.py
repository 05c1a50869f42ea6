"""A snapshot of ended messages against `spark.read.parquet` of the same rows, and how fast the journal is read.

All sides end in the `noop` sink, which takes every column of every row and keeps nothing. The ceiling is a source that
only returns prepared Arrow batches: what Spark itself needs to take rows from Python.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import statistics
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

import tampu
import tampu.spark
from bench.measure import Row, folder, rate, ratio_row
from bench.spark.stores import lax, store
from tampu.stores import columns
from tampu.stores.open_store import open_store
from tampu.stores.port import MessageQuery

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BATCH = 100
PIECES = 4
FEW = ("id", "state", "ended_at", "payload")
TEXT = "x" * 170


def fill(url: str, count: int) -> None:
    """Messages published, claimed and acked in batches of a hundred: three transitions each."""
    with tampu.open(lax(url), maintenance=False) as store:
        for start in range(0, count, BATCH):
            news = [
                tampu.NewMessage({"order": i, "text": TEXT}, type="order.placed") for i in range(start, start + BATCH)
            ]
            store.publish_many("orders", news)
            store.settle([tampu.Ack(lease) for lease in store.claim("orders", limit=BATCH, worker="w1")])


def _ready_made(url: str, place: Path) -> type[DataSource]:
    """A source of the same rows that only reads memory-mapped Arrow files. Defined here so that Spark ships it."""
    with open_store(url) as opened:
        pieces = opened.plan(MessageQuery(), PIECES).pieces
        for number, piece in enumerate(pieces):
            with pa.ipc.new_file(place / f"{number}.arrow", columns.MESSAGES) as file:
                for batch in opened.messages(piece):
                    file.write_batch(batch)
    files = [str(place / f"{number}.arrow") for number in range(len(pieces))]
    ddl = columns.ddl(columns.MESSAGES)

    class Reader(DataSourceReader):
        def partitions(self):
            return [InputPartition(name) for name in files]

        def read(self, partition):
            with pa.memory_map(partition.value) as raw, pa.ipc.open_file(raw) as file:
                for number in range(file.num_record_batches):
                    yield file.get_batch(number)

    class Made(DataSource):
        @classmethod
        def name(cls):
            return "ready-made"

        def schema(self):
            return ddl

        def reader(self, schema):  # noqa: ARG002 - Spark's call
            return Reader()

    return Made


def _simple(url: str) -> type[DataSource]:
    """A source that only takes numbers and packed bodies out of PostgreSQL by ADBC, in as many pieces."""
    import psycopg

    with psycopg.connect(url) as db:
        row = db.execute("SELECT min(seq), max(seq) FROM tampu.message").fetchone()
        assert row is not None
        first, last = row
    step = -(-(last + 1 - first) // PIECES)
    ranges = [(start, min(start + step - 1, last)) for start in range(first, last + 1, step)]

    class Reader(DataSourceReader):
        def partitions(self):
            return [InputPartition(piece) for piece in ranges]

        def read(self, partition):
            import adbc_driver_postgresql.dbapi as adbc  # type: ignore[import-untyped]  # it has no types

            text = "SELECT seq, created, max_attempts, body FROM tampu.message WHERE seq BETWEEN {} AND {}"
            hint = {"adbc.postgresql.batch_size_hint_bytes": str(4 << 20)}
            with adbc.connect(url) as db, db.cursor(adbc_stmt_kwargs=hint) as cursor:
                cursor.execute(text.format(*partition.value))
                yield from cursor.fetch_record_batch()

    class Bare(DataSource):
        @classmethod
        def name(cls):
            return "bare-adbc"

        def schema(self):
            return "seq bigint, created bigint, max_attempts int, body binary"

        def reader(self, schema):  # noqa: ARG002 - Spark's call
            return Reader()

    return Bare


def _noop(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def run(quick: bool, engine: str) -> list[Row]:
    return measure(engine, 100_000, 3) if quick else measure(engine, 1_000_000, 5)


def measure(engine: str, count: int, rounds: int) -> list[Row]:
    with folder() as place, store(engine, place) as url:
        filling = multiprocessing.get_context("spawn").Process(target=fill, args=(url, count))
        filling.start()
        filling.join()
        if filling.exitcode:
            raise RuntimeError("the store could not be filled")
        spark = tampu.spark.session("local[2]", name="bench-read")
        read = spark.read.format("tampu").option("url", url)
        read.load().write.parquet(str(place / "same"))
        os.sync()  # what the filling left to be written must not be measured
        same = spark.read.parquet(str(place / "same"))
        spark.dataSource.register(_ready_made(url, place))
        # A rate is the expected number by the time: it means something only if that many rows are there.
        there = (same.count(), read.load().count(), read.option("kind", "journal").load().count())
        if there != (count, count, 3 * count):
            raise RuntimeError(f"expected {count} messages with three transitions each, found {there}")
        sides = {
            "snapshot": (count, lambda: _noop(read.option("kind", "messages").load())),
            "parquet": (count, lambda: _noop(same)),
            "ready-made Arrow": (count, lambda: _noop(spark.read.format("ready-made").load())),
            f"snapshot of {len(FEW)} columns": (
                count,
                lambda: _noop(read.option("kind", "messages").option("columns", ",".join(FEW)).load()),
            ),
            f"parquet of {len(FEW)} columns": (count, lambda: _noop(same.select(*FEW))),
            "journal to noop": (3 * count, lambda: _noop(read.option("kind", "journal").load())),
            "journal to Parquet": (3 * count, lambda: _journal_to_parquet(spark, url, place)),
        }
        if engine == "postgres":
            spark.dataSource.register(_simple(url))
            sides["bare ADBC"] = (count, lambda: _noop(spark.read.format("bare-adbc").load()))
        for _, work in sides.values():
            work()
        names = list(sides)
        found: dict[str, list[float]] = {name: [] for name in names}
        for turn in range(rounds):
            for name in names[turn % len(names) :] + names[: turn % len(names)]:
                found[name].append(rate(*sides[name]))
        spark.stop()
    rows = [
        ratio_row(found, "snapshot", "parquet", "≥ 0.5"),
        ratio_row(found, "ready-made Arrow", "parquet", ""),
        ratio_row(found, "snapshot", "ready-made Arrow", ""),
        ratio_row(found, f"snapshot of {len(FEW)} columns", f"parquet of {len(FEW)} columns", ""),
    ]
    if "bare ADBC" in found:
        rows.append(ratio_row(found, "snapshot", "bare ADBC", ""))
        rows.append(ratio_row(found, "bare ADBC", "parquet", ""))
    rows += [Row(name, statistics.median(found[name]), "messages/s") for name in sides if "journal" not in name]
    return rows + [
        Row(name, statistics.median(found[name]), "transitions/s", "≥ 300 k")
        for name in ("journal to noop", "journal to Parquet")
    ]


def _journal_to_parquet(spark, url: str, place: Path) -> None:
    out = place / "events"
    shutil.rmtree(out, ignore_errors=True)
    spark.read.format("tampu").option("url", url).option("kind", "journal").load().write.parquet(str(out))
