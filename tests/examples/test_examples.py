"""Each program in examples/ runs, prints what its reader expects, and leaves its file in order."""

import os
import shutil
import signal
import subprocess
import sys
from datetime import date
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow.dataset import dataset

import tampu
from tampu.lake.storage import Lake, parquet
from tampu.spark.runtime import java
from tests.spark import quick_java

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

SAYS = {
    "hello.py": ["hello, Ada! (attempt 1)", "now it is done, with result {'said': True}"],
    "worker.py": ["stopped: 40 done, 0 still to do"],
    "outbox.py": ["nothing was kept", "order 1: tea, shipped 1 time"],
    "priorities.py": [
        "priority: ['password reset', 'receipt', 'second receipt', 'newsletter']",
        "deadline: ['due in an hour', 'due tomorrow', 'whenever']",
        "groups:   ['open', 'open another']\ngroups:   ['deposit']\ngroups:   ['close']",
    ],
    "dead_letters.py": ["'': empty after 1 attempts", "would replay 1\nreplayed 1\nremoved 1 for good\n4 done, 0 dead"],
    "lake_notebook.py": [
        "worked: 37 done, 3 dead",
        "gold: invoices: 40 in, 7 attempts failed",
        "office: 76 pages, up to invoice 38 of 38",
        "fails: ConnectionError: no route to printer: 3 dead after 7 attempts",
        "replay: 3 new, 0 before\nreplay: 0 new, 3 before\nleft: 0",
    ],
    "fastapi_shop.py": ["done: sent to ada@example.org: tea, milk", "stock is counted at 0 3 * * *"],
    "django_shop.py": ["tea: 201\nmoon: 500\norder 1: tea, shipped: True\n"],
    "loan_desk/desk.py": [
        "refused at once: payload.amount\nAda gets 700 at 9.9 %",
        "to decide: Grace asks for 80000.",
        "bob took too long: the boss may decide\nGrace gets 80000 at 3.5 %\nthe bank was called for Eve, Grace",
        "story: loans: published, reviewed by carol, done",
        "Eve: dead, refuse by bob: no income\naudit: bob refuse\naudit: carol approve",
    ],
    "async_fanout.py": ["100 pages done", "longest url: 22 characters", "of crawl-1: 100 done"],
}
OPTIONS = {"worker.py": ["--until-empty"]}
SECONDS = {"lake_notebook.py": 240}  # it starts Spark, which takes a while on a busy machine


def command(name: str, *options: str) -> list[str]:
    return [sys.executable, "-W", "error", str(EXAMPLES / name), *options]


def test_every_example_is_run():
    programs = [*EXAMPLES.glob("*.py"), *EXAMPLES.glob("loan_desk/*.py")]
    assert sorted(SAYS) == sorted(path.relative_to(EXAMPLES).as_posix() for path in programs)


@pytest.mark.parametrize("name", sorted(SAYS))
def test_example_says_what_it_should(name: str, tmp_path: Path):
    words = command(name, *OPTIONS.get(name, []))
    seconds = SECONDS.get(name, 180)
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=seconds, check=False)
    assert done.returncode == 0, done.stderr
    for line in SAYS[name]:
        assert line in done.stdout
    for file in tmp_path.glob("*.db"):
        with tampu.open(file, maintenance=False) as store:
            assert [f for f in store.check() if f[1] == "bad"] == []
            assert all(stats.depth == 0 for stats in store.stats())


def test_a_declarative_pipeline_keeps_views_of_the_lake(tmp_path: Path):
    """By Spark's own command, in a catalog on disk."""
    project = shutil.copytree(EXAMPLES / "declarative_pipeline", tmp_path / "project")
    spec = project / "spark-pipeline.yml"
    spec.write_text(spec.read_text().replace("file:///tmp/tampu_views", f"file://{tmp_path}/storage"))
    failed = [("orders", 2, 2), ("orders", 3, 3), ("emails", 0, 2)]
    rows = [{"queue": q, "claimed": 10, "failed": n, "dead": n, "day": date(2026, 3, day)} for q, n, day in failed]
    table = Lake(tmp_path / "lake").table("gold.queue_days")
    batch = pa.RecordBatch.from_pylist([row | {"tenant": "default"} for row in rows], schema=table.spec.schema)
    table.create().commit(list(parquet.write_batches(table.target, "test", [batch])), None)
    words = [str(Path(sys.executable).with_name("spark-pipelines"))]
    for name, value in {"sql.catalogImplementation": "hive", "driver.extraJavaOptions": quick_java.options()}.items():
        words += ["--conf", f"spark.{name}={value}"]
    env = os.environ | {"TAMPU_LAKE": str(tmp_path / "lake"), "PYSPARK_PYTHON": sys.executable}
    if home := java.provide():
        env["JAVA_HOME"] = home
    words.append("run")
    done = subprocess.run(words, cwd=project, env=env, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    views = project / "spark-warehouse"
    assert dataset(views / "failing_days").count_rows() == 2
    found = dataset(views / "worst_queues").to_table().to_pylist()
    assert found == [{"tenant": "default", "queue": "orders", "failing_days": 2, "dead": 5}]


def test_worker_finishes_what_it_has_when_asked_to_stop(tmp_path: Path):
    env = os.environ | {"PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command("worker.py"), cwd=tmp_path, env=env, stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdout is not None
        assert "is done" in worker.stdout.readline()
        worker.send_signal(signal.SIGTERM)
        rest, _ = worker.communicate(timeout=60)
    assert worker.returncode == 0
    assert "stopped: " in rest
    with tampu.open(tmp_path / "worker.db", maintenance=False) as store:
        assert store.stats("numbers").leased == 0
