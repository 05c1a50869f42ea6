"""The jobs of a run: files of several tables in one, a worker that dies leaves nothing that counts, settings return."""

from __future__ import annotations

import os
import signal
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from tampu.lake import jobs
from tampu.lake.storage import parquet
from tampu.lake.storage.files import DataFile, Place
from tampu.lake.storage.parquet import Target
from tampu.lake.tables import silver
from tests.lake.tables_in_memory import frame

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

SCHEMA = pa.schema([("n", pa.int64()), ("day", pa.date32()), ("tenant", pa.string())])
ROWS = ("id AS n", "DATE'2026-01-01' AS day", "'default' AS tenant")


def target(folder: Path, name: str) -> Target:
    return Target(name, Place(str(folder / name), {}), SCHEMA, True)


def numbers(target: Target, files: list[DataFile]) -> list[int]:
    return sorted(n for batch in parquet.read_batches(target.place, SCHEMA, files) for n in batch.column(0).to_pylist())


def test_one_job_writes_the_files_of_several_tables(spark: SparkSession, tmp_path: Path) -> None:
    targets = {name: target(tmp_path, name) for name in ("even", "odd")}
    rows = spark.range(10).selectExpr(*ROWS)
    outputs: dict[str, jobs.Rows] = {"even": (rows.where("n % 2 = 0"), None), "odd": (rows.where("n % 2 = 1"), None)}
    found = jobs.write(outputs, targets, "t")
    assert {name: numbers(targets[name], files) for name, files in found.items()} == {
        "even": [0, 2, 4, 6, 8],
        "odd": [1, 3, 5, 7, 9],
    }


def test_a_worker_that_is_killed_after_writing_leaves_nothing_that_counts(spark: SparkSession, tmp_path: Path) -> None:
    here, killed = target(tmp_path, "numbers"), tmp_path / "killed"

    def made(batches: Any) -> Iterator[pa.RecordBatch]:
        some = list(batches)
        if not killed.exists():
            # Its file is on the disk by now, and in no commit.
            assert list(parquet.write_batches(here, "t", some))
            killed.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        yield from some

    rows = spark.range(0, 12, 1, 1).selectExpr(*ROWS)
    found = jobs.write({"numbers": (rows, made)}, {"numbers": here}, "t")["numbers"]
    assert killed.exists()
    assert numbers(here, found) == list(range(12))
    assert len(list(Path(here.place.uri).rglob("*.parquet"))) > len(found), "what it wrote is there, and is not named"


@pytest.mark.parametrize("rows", [0, 10**9])
@pytest.mark.parametrize("own", ["America/New_York", None])
def test_the_settings_of_the_session_are_what_they_were(spark: SparkSession, own: str | None, rows: int) -> None:
    zone, before = "spark.sql.session.timeZone", spark.conf.get("spark.sql.session.timeZone")
    names = [zone, *jobs._SMALL]
    try:
        spark.conf.unset(zone) if own is None else spark.conf.set(zone, own)
        earlier = [spark.conf.get(name) for name in names]
        with jobs.configured(spark, rows):
            assert spark.conf.get(zone) == "UTC"
        assert [spark.conf.get(name) for name in names] == earlier
    finally:
        spark.conf.set(zone, before or "UTC")


def test_one_tenant_with_most_of_the_events_is_the_work_of_several_tasks(spark: SparkSession) -> None:
    day = date(2026, 1, 1)
    events = [
        {"partition": "0", "offset": n + 1, "queue": "jobs", "verb": "publish", "state": "ready", "id": str(n),
         "day": day, "tenant": "large" if n % 10 else "small"}
        for n in range(1000)
    ]  # fmt: skip
    settings = {"spark.sql.shuffle.partitions": "4", "spark.sql.adaptive.enabled": "false"}
    before = {name: spark.conf.get(name) for name in settings}
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        new, none = frame("bronze.events", events), frame("bronze.events", [])
        histories = silver.histories(spark, new, none, frame("bronze.messages", []))
        large = (
            histories.where("tenant = 'large'")
            .selectExpr("spark_partition_id() AS task")
            .groupBy("task")
            .count()
            .collect()
        )
    finally:
        for name, known in before.items():
            spark.conf.set(name, known or "")
    assert len(large) == 4
    assert max(row["count"] for row in large) < 900 / 2


@pytest.mark.parametrize(
    ("rows", "own", "partitions", "reads"),
    [
        (250_000, "200", "1", "1"),
        (600_000, "200", "3", "5"),
        (1_000_000, "4", "4", "8"),
        (12_000_000, "4", "12", "96"),
    ],
)
def test_there_are_as_many_tasks_as_there_is_work_for(
    spark: SparkSession, rows: int, own: str, partitions: str, reads: str
) -> None:
    """A shuffle in the parts that the session says, up to a size; files in small ones."""
    name = "spark.sql.shuffle.partitions"
    before = spark.conf.get(name)
    try:
        spark.conf.set(name, own)
        with jobs.configured(spark, rows):
            assert spark.conf.get(name) == partitions
            assert spark.conf.get("spark.sql.files.minPartitionNum") == reads
    finally:
        spark.conf.set(name, str(before))


@pytest.mark.parametrize("payloads", [True, False])
def test_rows_with_payloads_are_read_one_by_one(spark: SparkSession, tmp_path: Path, payloads: bool) -> None:
    place = target(tmp_path, "numbers")
    rows: dict[str, jobs.Rows] = {"numbers": (spark.range(10).selectExpr(*ROWS), None)}
    jobs.write(rows, {"numbers": place}, "t")
    with jobs.configured(spark, 1_000_000, payloads=payloads):
        read = spark.read.parquet(str(tmp_path / "numbers" / "*"))
        plan = read._jdf.queryExecution().executedPlan().toString()
    assert ("ColumnarToRow" not in plan) == payloads
