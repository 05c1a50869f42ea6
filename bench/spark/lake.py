"""The pipeline: journal → bronze in one large batch, and whole runs over growing journals, small ones after them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

import tampu.spark
from bench.measure import Row, folder
from bench.spark.journals import HOUR, NEXT_DAY, fill, peak_mib, processor_seconds
from tampu.lake import bronze
from tampu.lake.hands import Hands, listed, written
from tampu.lake.run import Pipeline
from tampu.lake.sheets import Sorted
from tampu.lake.snapshots import Mark
from tampu.lake.storage import Lake, LakeTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tampu.lake.lineage import RunReport

ROUNDS = 3
LITTLE = 3_000
LAYERS = ("bronze.events", "bronze.messages", "silver", "gold")


def direct(spark: SparkSession, url: str, table: LakeTable, end: int) -> float:
    """As the pipeline does it: executors read the store and write the files."""
    found = table.create()
    began = time.perf_counter()
    parts = bronze.slices({"0": 0}, {"0": end}, 32)
    sizes = [part.upto - part.after for part in parts]

    def act(part: bronze.Slice) -> Sorted:
        return (("bronze.events", batch) for batch in bronze.read_slice(url, part, "bench"))

    new = Hands(lambda: spark, 0).write(parts, act, sizes, end, [table.target], "bench")
    found.commit(new["bronze.events"], Mark("bench", 1, {"0": end}))
    return end / (time.perf_counter() - began)


def through_spark(spark: SparkSession, url: str, table: LakeTable, end: int) -> float:
    """The same rows through the data source, the JVM and a second Python worker."""
    found = table.create()
    began = time.perf_counter()
    rows = spark.read.format("tampu").option("url", url).option("kind", "journal").option("tenant", "*").load()
    rows = rows.selectExpr("*", "'bench' AS run", "to_date(at) AS day")
    target = table.target

    def act(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for told in written([target], "bench", ((target.name, batch) for batch in batches)):
            yield pa.RecordBatch.from_arrays([pa.array([told])], names=["told"])

    rows = rows.select(*[f"`{name}`" for name in target.schema.names])
    told = [row[0] for row in rows.mapInArrow(act, "told string").collect()]
    found.commit(listed([target], told)[target.name], Mark("bench", 1, {"0": end}))
    return end / (time.perf_counter() - began)


def to_bronze(spark: SparkSession, place: Path, transitions: int) -> list[Row]:
    url = str(place / "jobs.db")
    end = fill(place / "jobs.db", transitions)
    sides = {"direct": direct, "spark": through_spark}
    found: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(ROUNDS + 1):
        for name, side in sides.items():
            rate = side(spark, url, Lake(place / f"{name}{turn}").table("bronze.events"), end)
            if turn:  # the first round warms Spark up
                found[name].append(rate)
    ratios = [a / b for a, b in zip(found["direct"], found["spark"], strict=True)]
    return [
        Row("journal → bronze.events", statistics.median(found["direct"]), "transitions/s", "≥ 300,000", f"{end:,}"),
        Row("the same through format('tampu')", statistics.median(found["spark"]), "transitions/s"),
        Row(
            "direct / through the source",
            statistics.median(ratios),
            "ratio",
            "",
            f"{min(ratios):.2f} to {max(ratios):.2f}",
        ),
    ]


def _layers(reports: list[RunReport]) -> dict[str, float]:
    return {
        layer: sum(s for r in reports for step, s in r.seconds.items() if step.startswith(layer)) for layer in LAYERS
    }


def whole_runs(spark: SparkSession, sizes: list[int]) -> list[Row]:
    rows = []
    for size in sizes:
        with folder() as place:
            store = place / "jobs.db"
            end = fill(store, size)
            pipeline = Pipeline(str(store), Lake(place / "jobs.lake"), most=2 * size)
            cpu = processor_seconds()
            reports = pipeline.run(lambda: spark)
            cpu, took = processor_seconds() - cpu, _layers(reports)
            total = sum(report.took for report in reports)
            note = ", ".join(f"{layer} {seconds:.1f} s" for layer, seconds in took.items())
            memory = ", ".join(f"{kind} {mib:,.0f} MiB" for kind, mib in peak_mib().items())
            rows.append(Row(f"whole run over {end:,}", total, "s", "linear", f"{note}; {cpu:.0f} s of processor"))
            rows.append(Row(f"gold over {end:,}", end / took["gold"], "transitions/s", "linear", memory))
            fill(store, LITTLE, start=NEXT_DAY, span=HOUR)
            (report,) = pipeline.run(lambda: spark)
            note = ", ".join(f"{layer} {seconds:.1f} s" for layer, seconds in _layers([report]).items())
            rows.append(Row(f"{report.transitions:,} more after {end:,}", report.took, "s", "a few", note))
            began = time.perf_counter()
            pipeline.run(lambda: spark)
            if size == sizes[-1]:
                rows.append(Row("a run without news", time.perf_counter() - began, "s", "< 2"))
    return rows


def run(quick: bool, engine: str) -> list[Row]:  # noqa: ARG001 - the pipeline's own work is the same on each
    spark = tampu.spark.session("local[2]", name="bench")
    try:
        with folder() as place:
            rows = to_bronze(spark, place, 300_000 if quick else 3_000_000)
        sizes = [30_000, 100_000, 300_000]
        return rows + whole_runs(spark, sizes if quick else [*sizes, 1_000_000, 3_000_000, 10_000_000])
    finally:
        spark.stop()
