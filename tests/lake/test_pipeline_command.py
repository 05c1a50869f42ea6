"""`tampu pipeline` as a user runs it."""

from __future__ import annotations

import os
import signal
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import tampu
from tampu.broker import readers
from tampu.broker.readers import Reader
from tampu.cli.pipeline_running import Runner, translated
from tampu.lake.lineage import RunReport
from tampu.lake.metrics import Metrics
from tampu.lake.running import Pipeline
from tampu.lake.storage import Lake
from tampu.lake.urls import absolute, default_lake
from tests.cli.running import Command
from tests.lake.running_house import light_gold, work

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["light_gold"]
DAY = 86_400_000_000


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    monkeypatch.chdir(tmp_path)
    for name in ("TAMPU_TENANT", "TAMPU_LAKE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TAMPU_URL", "jobs.db")
    monkeypatch.setenv("COLUMNS", "200")
    return Command(tmp_path / "jobs.db")


def register(q: tampu.Queue, offset: int, *, idle_us: int = 0) -> None:
    engine = q._core.engine
    engine.run([readers.saving(Reader("lake:main", {"0": offset}, engine.now() - idle_us))])


def test_the_whole_way_from_the_queue_to_a_question(command: Command, spark: SparkSession, light_gold: None) -> None:
    with command.queue() as q:
        work(q)
        expected = q.journal().latest["0"]
    report = command.ok("pipeline", "run", "--once", "--archive-after", "1d")
    assert (report["run"], report["transitions"], report["rows"]["bronze.events"]) == (1, expected, expected)
    assert Path("jobs.lake", "gold", "tenant_days", "_delta_log").is_dir()
    assert command("pipeline", "run", "--once", "--archive-after", "1d").out == "nothing new\n"

    found = command.ok("pipeline", "status")
    assert (found["lag_messages"], found["archive_after"], found["position"]) == (0, 86_400, {"0": expected})
    assert {row["table"] for row in found["tables"]} >= {"bronze.events", "silver.attempts", "gold.slo"}
    assert "0 transitions behind" in command("pipeline", "status").out

    before = [row for row in found["tables"] if row["table"] == "gold.tenant_days"]
    again = command.ok("pipeline", "backfill", "--from", report["started"][:10], "--table", "silver")
    assert again["rows"]["gold.tenant_days"] == before[0]["rows"]
    assert again["rows"]["silver.attempts"] == 3

    code = "import pathlib; pathlib.Path('counted').write_text(str(sql('SELECT * FROM bronze_events').count()))"
    assert command("pipeline", "shell", "-c", code).code == 0
    assert Path("counted").read_text() == str(expected)

    joined = {row["table"]: row["into"] for row in command.ok("pipeline", "compact")["tables"]}
    assert joined["silver.attempts"] == 1
    after = {row["table"]: row["rows"] for row in command.ok("pipeline", "status")["tables"]}
    assert after["silver.attempts"] == 3
    assert command.ok("pipeline", "compact") == {"tables": []}
    assert command.ok("pipeline", "vacuum", "--dry-run") == {"tables": []}
    assert command.ok("pipeline", "forget", "main") == {"forgotten": "main"}
    assert command("pipeline", "forget", "main").code == 3


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (("run", "--once", "--every", "soon"), 2, "not a duration"),
        (("run", "--once", "--option", "x"), 2, "name=value"),
        (("run", "--once", "--format", "iceberg"), 2, "iceberg"),
        (("run", "--once", "--metrics-port", "many"), 2, "no port"),
        (("run", "--once", "--objectives", "none.json"), 2, "none.json"),
        (("backfill", "--from", "yesterday"), 2, "no day"),
        (("backfill", "--from", "2026-02-01", "--to", "2026-01-01"), 2, "before"),
        (("backfill", "--from", "2026-02-01", "--table", "bronze"), 2, "silver or gold"),
        (("compact",), 3, "pipeline run"),
        (("vacuum", "--retain", "1m"), 3, "no lake"),
        (("shell",), 3, "no lake"),
        (("forget", "other"), 3, "no reader"),
    ],
)
def test_bad_input_is_told_before_spark_is_started(
    command: Command, args: tuple[str, ...], code: int, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tampu.spark.session", lambda *_, **__: pytest.fail("Spark was started"), raising=False)
    with command.queue() as q:
        q.publish("jobs", 1)
    answer = command("pipeline", *args)
    assert (answer.code, says in answer.err) == (code, True), answer


def test_a_store_that_is_not_there_is_not_made(command: Command) -> None:
    assert command("pipeline", "run", "--once").code == 5
    assert command("pipeline", "status").code == 5
    assert not Path("jobs.db").exists()


def test_doctor_warns_of_a_reader_that_stands_still(command: Command) -> None:
    with command.queue() as q:
        q.publish("jobs", 1)
        register(q, 0, idle_us=2 * DAY)
    assert "pipeline forget main" in command("doctor").out
    with command.queue() as q:
        register(q, 0)
    assert "forget" not in command("doctor").out
    with command.queue() as q:
        register(q, 1, idle_us=2 * DAY)
    assert "forget" not in command("doctor").out, "it has everything"


def test_a_signal_ends_it_between_two_runs(url: str, q: tampu.Queue, tmp_path: Path) -> None:
    register(q, 0)
    told: list[RunReport] = []

    def tell(report: RunReport) -> None:
        told.append(report)
        if len(told) == 3:
            os.kill(os.getpid(), signal.SIGTERM)

    pipeline = Pipeline(url, Lake(tmp_path / "jobs.lake"))
    pipeline._up_to_date = lambda *_: True  # type: ignore[method-assign]  # as if there were never news
    runner = Runner(pipeline, None, None, {}, tell)
    runner.serve("0")
    before = signal.getsignal(signal.SIGTERM)
    runner.forever(0.001)
    assert len(told) == 3
    assert signal.getsignal(signal.SIGTERM) == before


def test_failures_of_the_store_are_tried_again_and_then_told(url: str, q: tampu.Queue, tmp_path: Path) -> None:
    pipeline = Pipeline(url, Lake(tmp_path / "jobs.lake"))
    tries: list[int] = []

    def fail(*_: object) -> bool:
        tries.append(1)
        raise tampu.StorageFull("no room")

    pipeline._up_to_date = fail  # type: ignore[method-assign,assignment]  # a disk that is full
    runner = Runner(pipeline, None, None, {}, lambda _: None)
    with pytest.raises(tampu.StorageFull):
        runner.forever(0.001)
    assert len(tries) == 5


def test_metrics_are_served(tmp_path: Path) -> None:
    metrics = Metrics("lake:main")
    port = metrics.serve("0")
    metrics.lag(7, 1.5)
    metrics.failed()
    text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10).read().decode()
    assert 'tampu_pipeline_lag_messages{reader="lake:main"} 7.0' in text
    assert 'tampu_pipeline_lag_seconds{reader="lake:main"} 1.5' in text
    for name in ("rows_total", "rows_per_second", "run_seconds", "last_success", "failures_total"):
        assert f"tampu_pipeline_{name}" in text


def test_what_spark_says_at_length_is_told_in_our_words() -> None:
    from pyspark.errors import PySparkException

    long = "Job aborted\n  File x\ntampu.model.errors.NotFound: transitions 1 to 5 were trimmed (read sooner)\n more"
    with pytest.raises(tampu.NotFound, match="were trimmed"), translated():
        raise PySparkException(long)
    with pytest.raises(tampu.Unavailable, match="Job aborted"), translated():
        raise PySparkException("Job aborted\nand so on")


@pytest.mark.parametrize(
    ("url", "lake"),
    [
        ("jobs.db", "jobs.lake"),
        ("/a/jobs", "/a/jobs.lake"),
        ("sqlite:////a/jobs.db?durability=process", "/a/jobs.lake"),
        ("postgresql://host/db", "tampu.lake"),
        ("env:QUEUE", "tampu.lake"),
    ],
)
def test_the_lake_is_beside_the_file(url: str, lake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TAMPU_LAKE", raising=False)
    assert default_lake(url) == lake
    monkeypatch.setenv("TAMPU_LAKE", "s3://bucket/lake")
    assert default_lake(url) == "s3://bucket/lake"


def test_executors_get_a_url_that_does_not_depend_on_their_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert absolute("jobs.db") == f"{tmp_path}/jobs.db"
    assert absolute("sqlite:///jobs.db?durability=process") == f"sqlite:///{tmp_path}/jobs.db?durability=process"
    for same in ("/a/jobs.db", "sqlite:////a/jobs.db", "env:QUEUE", "postgresql://host/db"):
        assert absolute(same) == same


def test_a_session_can_be_asked_for_again(spark: SparkSession) -> None:
    """A module of the same name must not stand in the function's place once it is imported."""
    import tampu.spark

    assert tampu.spark.session() is not None
    assert tampu.spark.session() is not None
