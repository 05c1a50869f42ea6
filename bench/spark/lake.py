"""The pipeline: journal → bronze in one large batch, a run without news, and whole runs over growing journals."""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING

import tampu
import tampu.spark
from bench.measure import PAYLOAD, Row, folder
from tampu.lake import bronze
from tampu.lake.running import Pipeline
from tampu.lake.storage import Lake, LakeTable, Mark, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BATCH = 1000
ROUNDS = 3


def fill(path: Path, transitions: int) -> None:
    """Messages that were published, claimed and acked: three transitions each, in batches of a thousand."""
    with tampu.open(f"sqlite:///{path}?durability=process", keepers=False) as q:
        for _ in range(0, transitions, 3 * BATCH):
            q.publish_many("bench", [PAYLOAD] * BATCH)
            q.settle([tampu.Ack(lease) for lease in q.claim("bench", limit=BATCH, worker="w")])


def direct(spark: SparkSession, url: str, table: LakeTable, end: int) -> float:
    """As the pipeline does it: executors read the store and write the files."""
    found = table.create()
    began = time.perf_counter()
    ranges, read = bronze.events(spark, url, {"0": 0}, {"0": end}, "bench")
    found.commit(write(ranges, table, "bench", via=read), Mark("bench", 1, {"0": end}))
    return end / (time.perf_counter() - began)


def through_spark(spark: SparkSession, url: str, table: LakeTable, end: int) -> float:
    """The same rows through the data source, the JVM and a second Python worker."""
    found = table.create()
    began = time.perf_counter()
    rows = spark.read.format("tampu").option("url", url).option("kind", "journal").option("tenant", "*").load()
    rows = rows.selectExpr("*", "'bench' AS run", "to_date(at) AS day")
    found.commit(write(rows, table, "bench"), Mark("bench", 1, {"0": end}))
    return end / (time.perf_counter() - began)


def to_bronze(spark: SparkSession, place: Path, transitions: int) -> list[Row]:
    fill(place / "jobs.db", transitions)
    url = str(place / "jobs.db")
    with tampu.open(url, keepers=False) as q:
        end = q.journal(limit=1).latest["0"]
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


def whole_runs(spark: SparkSession, sizes: list[int]) -> list[Row]:
    rows = []
    for size in sizes:
        with folder() as place:
            fill(place / "jobs.db", size)
            pipeline = Pipeline(str(place / "jobs.db"), Lake(place / "jobs.lake"), most=size)
            reports = pipeline.run(lambda: spark)
            took = {
                layer: sum(s for r in reports for step, s in r.seconds.items() if step.startswith(layer))
                for layer in ("bronze.events", "bronze.messages", "silver", "gold")
            }
            total = sum(report.took for report in reports)
            note = ", ".join(f"{layer} {seconds:.1f} s" for layer, seconds in took.items())
            rows.append(Row(f"whole run over {size:,}", size / total, "transitions/s", "", note))
            rows.append(Row(f"gold over {size:,}", size / took["gold"], "transitions/s", "linear"))
            began = time.perf_counter()
            pipeline.run(lambda: spark)
            if size == sizes[-1]:
                rows.append(Row("a run without news", time.perf_counter() - began, "s", "< 2"))
    return rows


def run(quick: bool) -> list[Row]:
    spark = tampu.spark.session("local[2]", name="bench", config={"spark.driver.memory": "4g"})
    try:
        with folder() as place:
            rows = to_bronze(spark, place, 300_000 if quick else 3_000_000)
        return rows + whole_runs(spark, [30_000, 90_000] if quick else [300_000, 1_000_000, 3_000_000, 10_000_000])
    finally:
        spark.stop()
