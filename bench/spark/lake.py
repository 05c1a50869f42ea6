"""The pipeline: journal → bronze in one large batch, and whole runs over growing journals, small ones after them."""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING

import tampu.spark
from bench.measure import Row, folder
from bench.spark.journals import HOUR, NEXT_DAY, fill, peak_mib, processor_seconds
from tampu.lake import bronze, jobs
from tampu.lake.run import Pipeline
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
    parts = bronze.slices({"0": 0}, {"0": end}, 32)

    def read(batches: jobs.Batches) -> jobs.Batches:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from bronze.read_slice(url, parts[number], "bench")

    return _written(table, (spark.range(0, len(parts), 1, len(parts)), read), end)


def through_spark(spark: SparkSession, url: str, table: LakeTable, end: int) -> float:
    """The same rows through the data source, the JVM and a second Python worker."""
    rows = spark.read.format("tampu").option("url", url).option("kind", "journal").option("tenant", "*").load()
    return _written(table, (rows.selectExpr("*", "'bench' AS run", "to_date(at) AS day"), None), end)


def _written(table: LakeTable, rows: jobs.Rows, end: int) -> float:
    """Transitions a second."""
    found, name = table.create(), table.spec.name
    began = time.perf_counter()
    new = jobs.write({name: rows}, {name: table.target}, "bench")[name]
    found.commit(new, Mark("bench", 1, {"0": end}))
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


def cold_and_warm(size: int) -> list[Row]:
    """A small run with the start of its session, and the same again in it."""
    rows: list[Row] = []
    began, cpu = time.perf_counter(), processor_seconds()
    spark = tampu.spark.session("local[2]", name="bench")
    for which in ("cold, with the session's start", "warm, the second", "warm, the third"):
        with folder() as place:
            end = fill(place / "jobs.db", size)
            began, cpu = (began, cpu) if not rows else (time.perf_counter(), processor_seconds())
            (report,) = Pipeline(str(place / "jobs.db"), Lake(place / "jobs.lake")).run(lambda: spark)
            note = ", ".join(f"{layer} {seconds:.1f} s" for layer, seconds in _layers([report]).items())
            note = f"{note}; {processor_seconds() - cpu:.0f} s of processor"
            rows.append(Row(f"{end:,}, {which}", time.perf_counter() - began, "s", "30" if not rows else "8", note))
    return rows


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
    rows = cold_and_warm(30_000)
    spark = tampu.spark.session("local[2]", name="bench")
    try:
        with folder() as place:
            rows += to_bronze(spark, place, 300_000 if quick else 3_000_000)
        sizes = [30_000, 100_000, 300_000]
        return rows + whole_runs(spark, sizes if quick else [*sizes, 1_000_000, 3_000_000, 10_000_000])
    finally:
        spark.stop()
