"""`tampu pipeline` as a user runs it."""

from __future__ import annotations

import errno
import io
import json
import logging
import os
import signal
import subprocess
import sys
import urllib.request
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

import tampu
from tampu.broker import access, journal_readers
from tampu.broker.journal_readers import Reader
from tampu.cli import exits
from tampu.cli.lake import run_pipeline
from tampu.cli.lake.metrics import Metrics
from tampu.cli.lake.pipeline import ReportPrinter, StepPrinter
from tampu.cli.lake.run_pipeline import Runner, translated, working_session
from tampu.cli.session import Session
from tampu.lake import gold
from tampu.lake.lineage import RunReport
from tampu.lake.rounds import Round
from tampu.lake.run import Pipeline
from tampu.lake.storage import Lake
from tampu.lake.storage.urls import absolute, default_lake
from tests.cli.run_command import Command
from tests.lake.pipeline_harness import work
from tests.server.web import Web
from tests.servers.http import Stall

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAY = 86_400_000_000


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    monkeypatch.chdir(tmp_path)
    for name in ("TAMPU_TENANT", "TAMPU_LAKE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TAMPU_URL", "jobs.db")
    monkeypatch.setenv("COLUMNS", "200")
    return Command(tmp_path / "jobs.db")


def register(store: tampu.Store, offset: int, *, idle_us: int = 0) -> None:
    engine = access.engine(store)
    engine.run([journal_readers.saving(Reader("lake:main", {"0": offset}, engine.now() - idle_us))])


def test_the_whole_way_from_the_queue_to_a_question(command: Command, spark: SparkSession) -> None:
    with command.queue() as store:
        store.queues.put("jobs", lease=60)
        work(store)
        expected = store.journal().latest["0"]
    report = command.ok("pipeline", "run", "--once", "--archive-after", "1d")
    assert (report["run"], report["transitions"], report["rows"]["bronze.events"]) == (1, expected, expected)
    assert Path("jobs.lake", "gold", "tenant_days", "_delta_log").is_dir()
    assert modules_of_a_run_without_news("--archive-after", "1d") == [], "each takes longer to import than such a run"

    found = command.ok("pipeline", "status")
    assert (found["lag_messages"], found["archive_after"], found["position"]) == (0, 86_400, {"0": expected})
    assert {row["table"] for row in found["tables"]} >= {"bronze.events", "silver.attempts", "gold.slo"}
    assert "0 transitions behind" in command("pipeline", "status").out

    acts = "SELECT action, target, after->>'lease' FROM bronze.audit"
    assert command.ok("sql", acts)["rows"] == [["queue.config", "jobs", "60.0"]]

    before = [row for row in found["tables"] if row["table"] == "gold.tenant_days"]
    Path("slo.json").write_text('{"objective": "success", "target": 0.5}')
    printed = command("pipeline", "run", "--once", "--archive-after", "1d", "--objectives", "slo.json")
    assert printed.out == "nothing new\n", "and the objectives are kept"
    yesterday = datetime.fromisoformat(report["started"]).date() - timedelta(days=1)
    again = command.ok("pipeline", "backfill", "--from", str(yesterday), "--table", "silver")
    assert again["rows"]["gold.tenant_days"] == before[0]["rows"]
    assert again["rows"]["silver.attempts"] == 3
    targets = "SELECT DISTINCT target FROM gold.slo WHERE objective = 'success'"
    assert command.ok("sql", targets)["rows"] == [[0.5]]
    runs = command.ok("sql", "SELECT run, reader, rows FROM _lineage ORDER BY run")["rows"]
    assert [(run, reader) for run, reader, _ in runs] == [(1, "lake:main"), (again["run"], "lake:main")]
    assert [json.loads(rows) for _, _, rows in runs] == [report["rows"], again["rows"]]
    assert command("sql", "FROM _lineage", "--tenant", "default").code == 2, "runs are of all tenants"

    code = "import pathlib; pathlib.Path('counted').write_text(str(sql('SELECT * FROM bronze_events').count()))"
    assert command("pipeline", "shell", "-c", code).code == 0
    assert Path("counted").read_text() == str(expected)

    with command.queue() as store:
        store.ack(store.claim("jobs")[0])
    assert command.ok("pipeline", "run", "--once", "--archive-after", "1d")["rows"]["silver.attempts"] == 1
    joined = {row["table"]: row["into"] for row in command.ok("pipeline", "compact")["tables"]}
    assert joined["_lineage"] == 1  # of the others, two runs before and after midnight have a file each
    after = {row["table"]: row["rows"] for row in command.ok("pipeline", "status")["tables"]}
    assert after["silver.attempts"] == 4
    assert command.ok("pipeline", "compact") == {"tables": []}
    assert command.ok("pipeline", "vacuum", "--dry-run") == {"tables": []}
    tomorrow = str(date.fromisoformat(report["started"][:10]) + timedelta(days=2))
    would = command("pipeline", "vacuum", "--drop-before", tomorrow, "--dry-run").out
    assert f"silver.attempts: 4 rows of days before {tomorrow} would be deleted" in would
    assert {row["table"]: row["rows"] for row in command.ok("pipeline", "status")["tables"]} == after
    dropped = command.ok("pipeline", "vacuum", "--drop-before", tomorrow)["dropped"]
    assert {"silver.attempts": 4}.items() <= {care["table"]: care["rows"] for care in dropped}.items()
    assert "nothing to remove" in command("pipeline", "vacuum", "--drop-before", tomorrow).out
    assert command.ok("pipeline", "forget", "main") == {"forgotten": "main"}
    assert command("pipeline", "forget", "main").code == 3


def modules_of_a_run_without_news(*options: str) -> list[str]:
    """Which of the large ones a process has imported that found nothing new."""
    script = (
        "import sys\n"
        "from typer.testing import CliRunner\n"
        "from tampu.cli.main import app\n"
        "print(CliRunner().invoke(app, ['pipeline', 'run', '--once', *sys.argv[1:]]).output)\n"
        "print(*sorted({'pandas', 'pyspark', 'duckdb'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", script, *options], capture_output=True, text=True, check=True)
    said, _, modules = done.stdout.split("\n", 2)
    assert said == "nothing new"
    return modules.split()


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (("run", "--once", "--every", "soon"), 2, "not a duration"),
        (("run", "--once", "--option", "x"), 2, "name=value"),
        (("shell", "--format", "iceberg"), 2, "iceberg"),
        (("run", "--once", "--metrics-port", "many"), 2, "no port"),
        (("run", "--once", "--objectives", "none.json"), 2, "none.json"),
        (("backfill", "--from", "yesterday"), 2, "not a date"),
        (("backfill", "--from", "2026-02-01", "--to", "2026-01-01"), 2, "before"),
        (("backfill", "--from", "2026-02-01", "--table", "bronze"), 2, "use silver or gold"),
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
    with command.queue() as store:
        store.publish("jobs", 1)
    answer = command("pipeline", *args)
    assert (answer.code, says in answer.err) == (code, True), answer


def test_a_store_that_is_not_there_is_not_made(command: Command) -> None:
    assert command("pipeline", "run", "--once").code == 5
    assert command("pipeline", "status").code == 5
    assert not Path("jobs.db").exists()


def test_the_pipeline_reads_through_a_server(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: SparkSession
) -> None:
    with command.queue() as store:
        work(store)
        expected = store.journal().latest["0"]
    served = Stall(url=str(command.path), key_file=tmp_path / "key", maintenance=False)
    try:
        monkeypatch.setenv("TAMPU_URL", served.url)
        monkeypatch.setenv("TAMPU_TOKEN", Web(served.url, served.token).key("admin"))
        refused = command("pipeline", "run", "--once")
        assert "key of all tenants" in refused.err
        assert refused.code == exits.FAILED
        monkeypatch.setenv("TAMPU_TOKEN", served.token)
        # Executors have the environment in which Spark was started, by whichever test.
        monkeypatch.setitem(spark.sparkContext.environment, "TAMPU_TOKEN", served.token)
        report = command.ok("pipeline", "run", "--once")
        assert report["transitions"] == report["rows"]["bronze.events"] == expected
        assert command.ok("pipeline", "status")["lag_messages"] == 0
        assert "lake:main, 0 transitions behind" in command("doctor").out
        printed = command("replay", "--from-lake", "--where", "true", "--lake", "tampu.lake", "--yes")
        assert "this is a server" in printed.err
        assert "reader main removed" in command("pipeline", "forget", "main").out
        assert "lake:main" not in command("doctor").out
    finally:
        served.stop()


def test_doctor_warns_of_a_reader_that_stands_still(command: Command) -> None:
    with command.queue() as store:
        store.publish("jobs", 1)
        register(store, 0, idle_us=2 * DAY)
    assert "pipeline forget main" in command("doctor").out
    with command.queue() as store:
        register(store, 0)
    assert "forget" not in command("doctor").out
    with command.queue() as store:
        register(store, 1, idle_us=2 * DAY)
    assert "forget" not in command("doctor").out, "it has everything"


def test_a_signal_ends_it_between_two_runs(url: str, store: tampu.Store, tmp_path: Path) -> None:
    register(store, 0)
    reports: list[RunReport] = []

    def tell(report: RunReport) -> None:
        reports.append(report)
        if len(reports) == 3:
            os.kill(os.getpid(), signal.SIGTERM)

    pipeline = Pipeline(url, Lake(tmp_path / "jobs.lake"))
    pipeline._up_to_date = lambda *_: True  # type: ignore[method-assign]  # as if there were never news
    runner = Runner(pipeline, None, None, {}, tell)
    runner.serve("0")
    before = signal.getsignal(signal.SIGTERM)
    runner.forever(0.001)
    assert len(reports) == 3
    assert signal.getsignal(signal.SIGTERM) == before


def test_what_comes_between_two_runs_is_brought_by_the_next_and_metrics_tell_of_both(
    url: str, store: tampu.Store, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved: list[int] = []

    def metrics() -> dict[str, float]:
        text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60).read().decode()
        events, behind = '{reader="lake:main",table="bronze.events"}', '{reader="lake:main"}'
        metrics = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
        return {
            "rows": float(metrics[f"tampu_pipeline_rows_total{events}"]),
            "behind": float(metrics[f"tampu_pipeline_lag_messages{behind}"]),
        }

    def tell(report: RunReport) -> None:
        if report.news:
            moved.append(report.transitions)
            if len(moved) == 1:
                store.publish_many("jobs", range(3))
            else:
                assert metrics() == {"rows": 8.0, "behind": 3.0}, "as it was found after the first run"
                store.publish("jobs", "while it ran")
                os.kill(os.getpid(), signal.SIGTERM)

    store.publish_many("jobs", range(5))
    lake = Lake(tmp_path / "jobs.lake")
    monkeypatch.setattr(Round, "silver", lambda *_: None)  # what follows from bronze is the other tests' business
    monkeypatch.setattr(gold, "refresh", lambda *_: {})
    runner = Runner(Pipeline(url, lake), None, None, {}, tell)
    port = runner.serve("0")
    runner.forever(0.001)
    assert moved == [5, 3]
    assert lake.table("bronze.events").open().rows() == 8
    assert metrics() == {"rows": 8.0, "behind": 1.0}


def test_that_there_is_nothing_new_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    now = datetime.now(UTC)
    said = []
    for as_json in (False, True):
        tell = ReportPrinter(Session(url="jobs.db", tenant=None, json=as_json))
        for run in (0, 0, 1, 0, 0):
            tell(RunReport(run=run, reader="lake:main", started=now, finished=now, from_position={}, to_position={}))
        said.append(capsys.readouterr().out)
    assert said[0].count("nothing new") == 2
    assert len(said[1].splitlines()) == 5, "a script gets a document for each run"


def test_ctrl_c_ends_a_command_without_tracebacks(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    before = signal.getsignal(signal.SIGINT)

    def start(*_: object, **_options: object) -> None:
        signal.signal(signal.SIGINT, lambda *_: pytest.fail("Spark's own way to be interrupted"))

    monkeypatch.setattr(run_pipeline, "spark_session", start)
    try:
        working_session(None, None, {})
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt:
            logging.exception("KeyboardInterrupt while sending command.")
        logging.error("something else")
    finally:
        signal.signal(signal.SIGINT, before)
        logging.getLogger().removeFilter(run_pipeline._worth_logging)
    ours = [record.message for record in caplog.records if record.name == "root"]  # threads of other tests log too
    assert ours == ["something else"]


def test_failures_of_the_store_are_tried_again_and_then_reported(url: str, store: tampu.Store, tmp_path: Path) -> None:
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


def test_a_lake_that_cannot_be_reached_is_tried_again_and_then_reported(
    command: Command, caplog: pytest.LogCaptureFixture
) -> None:
    with command.queue() as store:
        store.publish("jobs", 1)
    nowhere = "hdfs://127.0.0.1:1/lake"
    runner = Runner(Pipeline(str(command.path), Lake(nowhere)), None, None, {}, lambda _: None)
    port = runner.serve("0")
    with pytest.raises(tampu.Unavailable, match="the lake cannot be reached"):
        runner.forever(0.001)
    text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10).read().decode()
    assert 'tampu_pipeline_failures_total{reader="lake:main"} 5.0' in text
    assert 'tampu_pipeline_lag_messages{reader="lake:main"} 1.0' in text
    assert caplog.text.count("run failed, retrying") == 4
    answer = command("pipeline", "status", "--lake", nowhere)
    assert (answer.code, "[31m" in answer.err) == (exits.STORE, False)


def test_a_disk_that_is_full_may_have_room_again_and_what_is_forbidden_stays_so() -> None:
    with pytest.raises(tampu.StorageFull, match="no room for the lake"), translated():
        raise OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(PermissionError), translated():
        raise PermissionError(errno.EACCES, "Permission denied")


def test_metrics_are_served(tmp_path: Path) -> None:
    metrics = Metrics("lake:main")
    port = metrics.serve("0")
    metrics.lag(7, 1.5)
    metrics.failed()
    text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60).read().decode()
    assert 'tampu_pipeline_lag_messages{reader="lake:main"} 7.0' in text
    assert 'tampu_pipeline_lag_seconds{reader="lake:main"} 1.5' in text
    for name in ("rows_total", "rows_per_second", "run_seconds", "last_success", "failures_total"):
        assert f"tampu_pipeline_{name}" in text


def test_progress_is_shown_on_a_terminal_and_not_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    for stream, shown in ((Terminal(), True), (io.StringIO(), False)):
        monkeypatch.setattr("sys.stderr", stream)
        steps = StepPrinter(SimpleNamespace(json=False))  # type: ignore[arg-type]  # all it asks of a session
        with steps:
            steps("bronze.events")
        assert bool(stream.getvalue()) is shown


def test_the_demo_ends_with_what_gold_says(command: Command, spark: SparkSession) -> None:
    printed = command("demo", "--fast", "--lake")
    assert printed.code == 0, printed
    shown = printed.out.partition("Insights from its gold tables")[2]
    assert "emails" in shown
    dead = command.ok(
        "sql", "SELECT state, count(*) AS n FROM silver.messages GROUP BY state", "--url", "tampu-demo.db"
    )
    assert ["dead", 1] in dead["rows"]


def test_what_spark_says_at_length_is_told_in_our_words() -> None:
    from pyspark.errors import PySparkException

    long = "Job aborted\n  File x\ntampu.model.errors.NotFound: transitions 1 to 5 were trimmed (read sooner)\n more"
    with pytest.raises(tampu.NotFound, match="were trimmed"), translated():
        raise PySparkException(long)
    with pytest.raises(tampu.Unavailable, match="Job aborted") as failed, translated():
        raise PySparkException("Job aborted\nand so on")
    assert failed.value.hint == "nothing is lost: the next run repeats it"


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


@pytest.mark.parametrize(("repeated", "most", "short"), [(False, 5, True), (False, 4, False), (True, 5, False)])
def test_a_single_run_over_few_transitions_has_a_session_that_starts_fast(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, repeated: bool, most: int, short: bool
) -> None:
    asked: list[bool] = []

    def session(*_: object, short: bool) -> None:
        asked.append(short)
        raise tampu.VersionConflict("no Spark in this test")

    monkeypatch.setattr("tampu.cli.lake.run_pipeline.working_session", session)
    monkeypatch.setattr("tampu.cli.lake.run_pipeline._SHORT", most)
    url = str(tmp_path / "jobs.db")
    with tampu.open(url) as store:
        store.publish_many("jobs", range(5))
    runner = Runner(Pipeline(url, Lake(tmp_path / "jobs.lake")), None, None, {}, lambda _: None)
    with pytest.raises(tampu.VersionConflict):
        runner.forever(0.001) if repeated else runner.once()
    assert asked == [short]
