"""The same program on `local-cluster`, on a standalone master with two workers, and through Spark Connect on top of it.

On the standalone cluster executors are also killed, and slow tasks get a copy. The driver of the local cluster meets
another one on its checkpoints.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from pyspark.errors import StreamingQueryException

import tampu
from tampu.engines.port import PutDocument
from tampu.lake.storage import Lake
from tampu.spark.queue.delivery_log import HEADS, head_name, read_head
from tampu.spark.runtime import java, python
from tampu.stores.open_store import open_store
from tests.servers.ports import free_port
from tests.spark import paused_driver, quick_java
from tests.spark.cluster_faults import ROWS, WRITES, evidence
from tests.spark.writer_driver import staged

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
EXPECTED = {"rows": 200, "total": sum(range(200)), "journal": 200}


def _environment(folder: Path) -> dict[str, str]:
    import pyspark

    java.provide()
    quick = quick_java.options()  # also for the programs that get this environment
    return {
        **os.environ,
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(folder / "local"),
        "SPARK_WORKER_DIR": str(folder / "work"),
        "SPARK_DAEMON_JAVA_OPTS": f"{quick} -Dspark.master.rest.enabled=false",
        "PYSPARK_PYTHON": python.provide(),
    }


class _Server:
    """A process that is ready when it has said a certain word."""

    def __init__(self, command: list[str], environment: dict[str, str], ready: str) -> None:
        self._process = subprocess.Popen(
            command,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._ready = threading.Event()
        self._is_ready = False
        self._said: list[str] = []
        self._listener = threading.Thread(target=self._listen, args=(ready,), daemon=True)
        self._listener.start()
        self._ready.wait(240)
        if not self._is_ready:
            self.stop()
            raise AssertionError(f"{command[1]} did not start:\n{''.join(self._said[-30:])}")

    def _listen(self, ready: str) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._said.append(line)
            if ready in line:
                self._is_ready = True
                self._ready.set()
        self._ready.set()

    def stop(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(60)
        self._listener.join(60)
        assert self._process.stdout is not None
        self._process.stdout.close()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """A standalone master with two workers; (its address, the environment for programs).

    They have two names of this machine: Spark makes no copy of a task on the host where it runs already.
    """
    environment = _environment(tmp_path)
    spark_class = str(Path(environment["SPARK_HOME"], "bin", "spark-class"))
    port = free_port()
    address = f"spark://127.0.0.1:{port}"
    started: list[_Server] = []
    try:
        master = [spark_class, "org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", str(port)]
        started.append(_Server([*master, "--webui-port", "0"], environment, "I have been elected leader"))
        worker = [spark_class, "org.apache.spark.deploy.worker.Worker", "--webui-port", "0", "--cores", "1"]
        hosts = [[*worker, "--memory", "1g", "--host", host, address] for host in ("127.0.0.1", "127.0.0.2")]
        with ThreadPoolExecutor(len(hosts)) as pool:
            begun = [pool.submit(_Server, command, environment, "Successfully registered") for command in hosts]
            started += [one.result() for one in as_completed(begun) if one.exception() is None]
        for one in begun:
            one.result()
        yield address, environment
    finally:
        for server in reversed(started):
            server.stop()


def _run(url: str, environment: dict[str, str], *arguments: str) -> dict[str, Any]:
    done = subprocess.run(  # noqa: PLW1510 - reported below, with its output
        [sys.executable, "-m", "tests.spark.cluster_job", url, f"{url}.lake", *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(json.loads(done.stdout.strip().splitlines()[-1]))


def _check(url: str, answer: dict[str, Any]) -> None:
    assert {name: answer[name] for name in EXPECTED} == EXPECTED
    with tampu.open(url, maintenance=False) as store:
        assert store.stats("numbers").counts[tampu.State.READY] == 200
        written = {(t.offset, t.id) for t in store.journal(limit=1000).transitions}
    assert answer["pipeline"]["transitions"] == 200, answer
    lake = Lake(f"{url}.lake")
    events = lake.table("bronze.events").open().arrow().to_table().to_pylist()
    assert sorted((e["offset"], e["id"]) for e in events) == sorted(written)
    (minute, *_) = lake.table("gold.queue_minutes").open().arrow().to_table().to_pylist()
    assert (minute["queue"], minute["published"]) == ("numbers", 200)


def _check_accidents(url: str, folder: Path, seen: dict[str, Any]) -> None:
    """Copies of slow tasks, killed executors and killed workers: no row is doubled, none is lost."""
    noted = evidence(folder)
    everything = list(range(ROWS))
    with tampu.open(url, maintenance=False) as store:
        transitions = Counter((t.queue, t.verb, t.id) for t in store.journal(limit=10_000).transitions)
        assert set(transitions.values()) == {1}, "nothing happened twice"
        for queue, options in WRITES.items():
            marks = noted[f"write-{queue}"]
            assert {"happened", "attempt-1-1", "finished"} <= marks, (queue, marks)
            found = [m for state in tampu.State for m in store.messages(queue, state=state, limit=1000)]
            assert sorted(int(m.raw) for m in found) == everything, (queue, options)
        done = store.messages("copied", state="done", limit=1000)
        assert [m.attempts for m in done] == [1] * ROWS, "drained once, all of them"
    assert staged(url) == []
    assert {"happened", "attempt-0-1", "finished"} <= noted["read"]
    assert seen["read"] == everything
    assert {"happened", "attempt-1-1", "finished"} <= noted["drain"]
    assert seen["drained"] == [everything]


def test_a_local_cluster_with_executors_of_its_own_whose_driver_meets_another(
    tmp_path: Path, spark: SparkSession
) -> None:
    url, home = str(tmp_path / "jobs.db"), tmp_path / "meeting"
    home.mkdir()
    arguments = ("--master", "local-cluster[1,2,600]", "--meeting", str(home))
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(_run, url, _environment(tmp_path), *arguments)
        waits = [home / f"{name}.waits" for name in ("drain", "copy", "lake")]
        paused_driver.until(lambda: running.done() or all(path.exists() for path in waits), "the first driver")
        try:
            if not running.done():
                _come_second(spark, str(home / "jobs.db"), home)
        finally:
            (home / "go").touch()
        answer = running.result()
    _check(url, answer)
    _check_meeting(str(home / "jobs.db"), home, answer["ended"])


def _come_second(spark: SparkSession, url: str, home: Path) -> None:
    """Another driver on the checkpoints and the lake of one that is in the middle of its work."""
    with pytest.raises(StreamingQueryException, match="in use by another driver"):
        paused_driver.start_drain(spark, url, home, takeoverSeconds=0).awaitTermination(paused_driver.PATIENCE)
    with open_store(url) as store:  # as if the first had not been heard of for long
        head, version = read_head(store, "default", "emails", "billing")
        assert head is not None
        silent = msgspec.msgpack.encode(msgspec.structs.replace(head, beat_us=0))
        store.run([PutDocument(HEADS, "default", head_name("emails", "billing"), silent, version)])
    assert paused_driver.start_drain(spark, url, home).awaitTermination(paused_driver.PATIENCE)
    assert paused_driver.start_copy(spark, url, home).awaitTermination(paused_driver.PATIENCE)
    paused_driver.keep_lake(spark, url, home)


def _check_meeting(url: str, home: Path, ended: dict[str, str]) -> None:
    """The first driver has ended with an error wherever it was; everything has happened once."""
    assert "another driver has taken" in ended["drain"], ended
    assert "CONCURRENT_STREAM_LOG_UPDATE" in ended["copy"], ended
    assert ended["lake"].startswith("VersionConflict: another run"), ended
    with tampu.open(url, maintenance=False) as store:
        transitions = [(t.offset, t.id, t.verb) for t in store.journal(limit=1000).transitions]
        verbs = Counter((id, verb) for _, id, verb in transitions)
        ids = {id for _, id, _ in transitions}
        assert verbs == {(id, verb): 1 for id in ids for verb in ("publish", "claim", "ack")}
        assert (len(ids), store.stats("emails").done) == (paused_driver.MESSAGES, paused_driver.MESSAGES)
    batches = [json.loads(line) for line in (home / "drained.jsonl").read_text().splitlines()]
    assert [number for number, _ in batches] == [0, 0, 1, 2], "the batch in the middle of which they met came twice"
    assert batches[0] == batches[1]
    with tampu.open(home / "copy.db", maintenance=False) as copy:
        copied = [m.payload for m in copy.messages("events", limit=1000)]
    assert sorted((row["offset"], row["id"], row["verb"]) for row in copied) == transitions
    events = Lake(str(home / "lake")).table("bronze.events").open().arrow().to_table().to_pylist()
    assert sorted((e["offset"], e["id"], e["verb"]) for e in events) == transitions


def test_a_standalone_cluster_and_spark_connect_on_top_of_it(
    tmp_path: Path, cluster: tuple[str, dict[str, str]]
) -> None:
    address, environment = cluster
    url = str(tmp_path / "classic.db")
    answer = _run(url, environment, "--master", address, "--accidents", str(tmp_path / "accidents"))
    _check(url, answer)
    _check_accidents(f"{url}-accidents", tmp_path / "accidents", answer["seen"])
    port = free_port()
    submit = str(Path(environment["SPARK_HOME"], "bin", "spark-submit"))
    connect = _Server(
        [
            submit,
            *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "--master", address),
            *("--conf", f"spark.connect.grpc.binding.port={port}", "--conf", "spark.driver.host=127.0.0.1"),
            *("--conf", "spark.connect.grpc.binding.address=127.0.0.1", "--conf", "spark.ui.enabled=false"),
            *("--conf", f"spark.executor.extraJavaOptions={quick_java.options()}"),
            *("--driver-java-options", quick_java.options()),
            *("--conf", "spark.executor.memory=600m", "--conf", "spark.driver.memory=600m"),
            "spark-internal",
        ],
        environment,
        "Spark Connect server started",
    )
    try:
        url = str(tmp_path / "connect.db")
        _check(url, _run(url, environment, "--remote", f"sc://127.0.0.1:{port}"))
    finally:
        connect.stop()
