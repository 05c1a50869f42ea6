"""The pipeline: journal → bronze in one large batch, whole runs over growing journals with small ones after them, one
tenant that has nearly everything, how soon gold shows what was committed, and what checks cost."""

from __future__ import annotations

import contextlib
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import tampu
import tampu.spark
from bench.measure import PAYLOAD, Row, folder, ratio
from bench.spark.journals import HOUR, NEXT_DAY, fill, peak_mib, processor_seconds
from tampu.lake import bronze, expectations, jobs
from tampu.lake.run import Pipeline
from tampu.lake.storage import Lake, LakeTable
from tampu.lake.storage.snapshots import Mark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tampu.lake.lineage import RunReport

ROUNDS = 3
LITTLE = 3_000
BATCHES = 40
COLD = 8
"""Batches that meet a session that is not warm."""
BETWEEN = 4.0
"""Seconds between two commits that gold is to show."""
EVERY = 2.0
"""Seconds between two runs, as `tampu pipeline run` has it."""
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


def _noted(spark: SparkSession, pipeline: Pipeline) -> tuple[list[RunReport], str]:
    """One run, and what it cost."""
    spark.sparkContext.setJobGroup("bench", "one run")
    known = set(spark.sparkContext.statusTracker().getJobIdsForGroup("bench"))
    cpu = processor_seconds()
    reports = pipeline.run(lambda: spark)
    cpu = processor_seconds() - cpu
    tracker = spark.sparkContext.statusTracker()
    jobs_of_it = [tracker.getJobInfo(job) for job in set(tracker.getJobIdsForGroup("bench")) - known]
    stages = sum(len(job.stageIds) for job in jobs_of_it if job is not None)
    layers = ", ".join(f"{layer} {seconds:.1f} s" for layer, seconds in _layers(reports).items())
    return reports, f"{layers}; {cpu:.0f} s of processor, {len(jobs_of_it)} jobs, {stages} stages"


def cold_and_warm(size: int) -> list[Row]:
    """A small run with the start of its session, and the same again in it."""
    rows: list[Row] = []
    with folder() as place:
        for turn in range(4):
            fill(place / f"{turn}.db", size)
        began = time.perf_counter()
        spark = tampu.spark.session("local[2]", name="bench")
        for turn in range(4):
            began = time.perf_counter() if turn else began
            reports, note = _noted(spark, Pipeline(str(place / f"{turn}.db"), Lake(place / f"{turn}.lake")))
            took = time.perf_counter() - began
            which = f"warm, run {turn + 1}" if turn else "cold, with the session's start"
            rows.append(Row(f"{reports[0].transitions:,}, {which}", took, "s", "8" if turn else "30", note))
    return rows


def whole_runs(spark: SparkSession, sizes: list[int]) -> list[Row]:
    rows = []
    for size in sizes:
        with folder() as place:
            store = place / "jobs.db"
            end = fill(store, size)
            pipeline = Pipeline(str(store), Lake(place / "jobs.lake"), most=2 * size)
            reports, note = _noted(spark, pipeline)
            memory = ", ".join(f"{kind} {mib:,.0f} MiB" for kind, mib in peak_mib().items())
            took = sum(report.took for report in reports)
            rows.append(Row(f"whole run over {end:,}", took, "s", "linear", f"{note}; {memory}"))
            for day, start in (("the same day", NEXT_DAY - HOUR), ("the next day", NEXT_DAY)):
                fill(store, LITTLE, start=start, span=HOUR)
                (report,), note = _noted(spark, pipeline)
                rows.append(Row(f"{report.transitions:,} more after {end:,}, {day}", report.took, "s", "8", note))
            began = time.perf_counter()
            pipeline.run(lambda: spark)
            if size == sizes[-1]:
                rows.append(Row("a run without news", time.perf_counter() - began, "s", "< 2"))
    return rows


def one_tenant(spark: SparkSession, size: int) -> list[Row]:
    """Nine of ten transitions are one tenant's, of one day: how they are divided among tasks."""
    with folder() as place:
        end = fill(place / "jobs.db", size, shares=(9, 1))
        first = _last_stage(spark)
        reports, note = _noted(spark, Pipeline(str(place / "jobs.db"), Lake(place / "jobs.lake"), most=2 * size))
        tasks, most, memory = _largest_task(spark, first)
    rows = [Row(f"nine of ten of {end:,} are one tenant's", sum(report.took for report in reports), "s", "", note)]
    return [*rows, Row("rows that its largest task read", most, f"of {tasks} tasks", "", f"peak {memory:,.0f} MiB")]


def _last_stage(spark: SparkSession) -> int:
    found = _stages(spark)
    return max((stage.stageId() for stage in found), default=-1)


def _stages(spark: SparkSession) -> list[Any]:
    context: Any = spark.sparkContext
    no_quantiles = context._gateway.new_array(context._jvm.double, 0)
    no_states = context._jvm.java.util.ArrayList()
    listed = context._jsc.sc().statusStore().stageList(None, False, False, no_quantiles, no_states)
    return [listed.apply(at) for at in range(listed.size())]


def _largest_task(spark: SparkSession, after: int) -> tuple[int, float, float]:
    """Of the stage with the largest shuffled task, how many tasks; of that task, its rows and peak memory."""
    store = spark.sparkContext._jsc.sc().statusStore()
    best = (0, 0.0, 0.0)
    for stage in _stages(spark):
        if stage.stageId() <= after or not stage.shuffleReadRecords():
            continue
        tasks = store.taskList(stage.stageId(), stage.attemptId(), 10_000)
        for at in range(tasks.size()):
            metrics = tasks.apply(at).taskMetrics()
            rows = float(metrics.get().shuffleReadMetrics().recordsRead()) if metrics.isDefined() else 0.0
            if rows > best[1]:
                best = (stage.numTasks(), rows, metrics.get().peakExecutionMemory() / (1 << 20))
    return best


def followed(spark: SparkSession) -> list[Row]:
    """A batch of three hundred transitions every few seconds; for each, the time from its commit until gold has it."""
    with folder() as place:
        url = str(place / "jobs.db")
        committed: list[tuple[int, float]] = []

        def work() -> None:
            with tampu.open(url, maintenance=False) as queue:
                for _ in range(BATCHES):
                    queue.publish_many("emails", [tampu.NewMessage(PAYLOAD, type="emails.run")] * 100)
                    queue.settle([tampu.Ack(lease) for lease in queue.claim("emails", limit=100, worker="w1")])
                    committed.append((queue.journal(limit=1).latest["0"], time.perf_counter()))
                    time.sleep(BETWEEN)

        pipeline = Pipeline(url, Lake(place / "jobs.lake"))
        worker = threading.Thread(target=work)
        worker.start()
        waited: list[float] = []
        while len(waited) < BATCHES:
            time.sleep(EVERY)
            reached = pipeline.run(lambda: spark)[-1].to_position["0"]
            shown = time.perf_counter()
            waited += [shown - at for offset, at in committed[len(waited) :] if offset <= reached]
        worker.join()
    waited = sorted(waited[COLD:])
    p50, p99 = waited[len(waited) // 2], waited[int(len(waited) * 0.99)]
    note = f"{len(waited)} batches, one every {BETWEEN:g} s"
    return [Row("a commit is in gold after, p50", p50, "s", "10", note), Row("the same, p99", p99, "s", "10")]


def checked(spark: SparkSession, size: int) -> list[Row]:
    """What a run costs with the checks of its rows and without them, in turns in a warm session."""
    sides: dict[str, Callable[[], contextlib.AbstractContextManager[None]]] = {
        "with its checks": contextlib.nullcontext,
        "without them": _unchecked,
    }
    found: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(ROUNDS + 1):
        for name, side in sides.items():
            with folder() as place, side():
                fill(place / "jobs.db", size)
                cpu = processor_seconds()
                Pipeline(str(place / "jobs.db"), Lake(place / "jobs.lake")).run(lambda: spark)
                if turn:  # the first round warms Spark up
                    found[name].append(processor_seconds() - cpu)
    rows = [
        Row(f"a run over {size:,}, {name}", statistics.median(cpu), "s of processor") for name, cpu in found.items()
    ]
    more, least, most = ratio(found, *sides)
    return [*rows, Row("with / without", more, "ratio", "", f"{least:.2f} to {most:.2f}")]


@contextlib.contextmanager
def _unchecked() -> Iterator[None]:
    """`--no-checks` counts, and warns; here nothing is counted."""
    with (
        mock.patch.object(expectations.Watch, "over", lambda _watch, _name, rows: rows),
        mock.patch.object(expectations, "_repeated", return_value=0),
    ):
        yield


def _in_folder(spark: SparkSession, quick: bool) -> list[Row]:
    with folder() as place:
        return to_bronze(spark, place, 300_000 if quick else 3_000_000)


PARTS: dict[str, Callable[[SparkSession, bool], list[Row]]] = {
    "followed": lambda spark, _quick: followed(spark),
    "checks": lambda spark, quick: checked(spark, 30_000 if quick else 300_000),
    "bronze": _in_folder,
    "runs": lambda spark, quick: whole_runs(spark, [30_000, 300_000] if quick else [30_000, 1_000_000, 10_000_000]),
    "tenant": lambda spark, quick: one_tenant(spark, 300_000 if quick else 10_000_000),
}
"""What is measured in one session, after the start of one was."""


def run(quick: bool, engine: str, *only: str) -> list[Row]:  # noqa: ARG001 - the pipeline's own work is the same on each
    rows = [] if only else cold_and_warm(30_000)
    spark = tampu.spark.session("local[2]", name="bench")
    try:
        return rows + [row for name in only or PARTS for row in PARTS[name](spark, quick)]
    finally:
        spark.stop()
