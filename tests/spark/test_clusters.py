"""The same program on `local-cluster`, on a standalone master with a worker, and through Spark Connect on top of it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tampu
from tampu.spark import java, python

JOB = Path(__file__).with_name("cluster_job.py")
EXPECTED = {"rows": 200, "total": sum(range(200)), "journal": 200}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _environment(folder: Path) -> dict[str, str]:
    import pyspark

    java.provide()
    return {
        **os.environ,
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(folder / "local"),
        "SPARK_WORKER_DIR": str(folder / "work"),
        "SPARK_DAEMON_JAVA_OPTS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Dspark.master.rest.enabled=false",
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
        self._ready.wait(120)
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
        self._process.wait(30)
        self._listener.join(30)
        assert self._process.stdout is not None
        self._process.stdout.close()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """A standalone master with one worker; (its address, the environment for programs)."""
    environment = _environment(tmp_path)
    spark_class = str(Path(environment["SPARK_HOME"], "bin", "spark-class"))
    port = _free_port()
    address = f"spark://127.0.0.1:{port}"
    started: list[_Server] = []
    try:
        master = [spark_class, "org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", str(port)]
        started.append(_Server([*master, "--webui-port", "0"], environment, "I have been elected leader"))
        worker = [spark_class, "org.apache.spark.deploy.worker.Worker", "--host", "127.0.0.1", "--webui-port", "0"]
        started.append(
            _Server([*worker, "--cores", "2", "--memory", "1g", address], environment, "Successfully registered")
        )
        yield address, environment
    finally:
        for server in reversed(started):
            server.stop()


def _run(url: str, environment: dict[str, str], *arguments: str) -> dict[str, Any]:
    done = subprocess.run(  # noqa: PLW1510 - told below, with what it said
        [sys.executable, str(JOB), url, *arguments], env=environment, capture_output=True, text=True, timeout=180
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(json.loads(done.stdout.strip().splitlines()[-1]))


def _check(url: str, answer: dict[str, Any]) -> None:
    assert {name: answer[name] for name in EXPECTED} == EXPECTED
    assert not answer["url_in_plan"]
    with tampu.open(url, keepers=False) as q:
        assert q.stats("numbers").counts[tampu.State.READY] == 200


def test_a_local_cluster_with_executors_of_its_own(tmp_path: Path) -> None:
    url = str(tmp_path / "jobs.db")
    _check(url, _run(url, _environment(tmp_path), "--master", "local-cluster[1,2,600]"))


def test_a_standalone_cluster_and_spark_connect_on_top_of_it(
    tmp_path: Path, cluster: tuple[str, dict[str, str]]
) -> None:
    address, environment = cluster
    url = str(tmp_path / "classic.db")
    _check(url, _run(url, environment, "--master", address))
    port = _free_port()
    submit = str(Path(environment["SPARK_HOME"], "bin", "spark-submit"))
    connect = _Server(
        [
            submit,
            *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "--master", address),
            *("--conf", f"spark.connect.grpc.binding.port={port}", "--conf", "spark.driver.host=127.0.0.1"),
            *("--conf", "spark.connect.grpc.binding.address=127.0.0.1", "--conf", "spark.ui.enabled=false"),
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
