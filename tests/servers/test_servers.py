"""The servers of the tests themselves: none outlives its test process, and no two runs of the tests meet on a port."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.harness import until
from tests.servers import ports

ROOT = Path(__file__).parents[2]
STARTS = {
    "redis": "from tests.servers.redis import Server, redis_binary; s = Server(redis_binary()).start()",
    "postgres": "from tests.servers.postgres import Postgres; s = Postgres().start()",
    "mariadb": "from tests.servers.mariadb import MariaDb; s = MariaDb().start()",
}


@pytest.fixture
def folder() -> Iterator[Path]:
    """For what nobody tidies up; PostgreSQL may be another user, who has to get there."""
    made = Path(tempfile.mkdtemp(prefix="tampu-servers-"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made, ignore_errors=True)


def _child(code: str, **environment: str) -> subprocess.Popen[str]:
    """A process of its own, which says some numbers and waits."""
    return subprocess.Popen(
        [sys.executable, "-c", f"{code}; input()"],
        cwd=ROOT, env={**os.environ, **environment}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip


def _numbers(child: subprocess.Popen[str]) -> list[int]:
    assert child.stdout is not None
    return [int(word) for word in child.stdout.readline().split()]


@pytest.mark.parametrize("kind", STARTS)
def test_a_server_ends_with_a_test_process_that_is_killed(kind: str, folder: Path) -> None:
    code = f"{STARTS[kind]}; print(s.port, s._process.pid, flush=True)"
    with _child(code, TMPDIR=str(folder)) as child:
        port, pid = _numbers(child)
        child.kill()
    try:
        until(lambda: not _answers(port))
    except AssertionError:
        os.kill(pid, signal.SIGKILL)
        raise


def _answers(port: int) -> bool:
    with socket.socket() as knocking:
        return knocking.connect_ex(("127.0.0.1", port)) == 0


def test_two_runs_of_the_tests_are_never_given_the_same_port(monkeypatch: pytest.MonkeyPatch) -> None:
    turn = next(ports._turns)
    code = f"import itertools; from tests.servers import ports; ports._turns = itertools.count({turn})"
    with _child(f"{code}; print(ports.free_port(), flush=True)") as other:
        (theirs,) = _numbers(other)
        monkeypatch.setattr(ports, "_turns", itertools.count(turn))
        assert ports.free_port() != theirs
        other.kill()
