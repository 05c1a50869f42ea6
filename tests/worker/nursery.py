"""Starts `tampu work` or `tampu serve` by forking a process that has everything imported: it is there at once, not in a
second, nor in half a minute on a busy machine.

What it does from then on is what it does when a shell starts it; tests/worker/test_command.py and
tests/server/test_commands.py start it as a shell does.
"""

from __future__ import annotations

import atexit
import functools
import importlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.conformance.harness import until

ROOT = Path(__file__).parents[2]
IMPORTED = (
    "tampu.cli.main", "tampu.cli.commands.work.worker", "typer._adapters", "tampu.client", "tampu.engines.postgres",
    "tampu.engines.redis", "tampu.worker.process.run", "tampu.worker.pools.process_pool",
    "tampu.cli.commands.serve.server", "tampu.server.run",
)  # fmt: skip


class Process:
    """What `subprocess.Popen` offers for a child, for one of the nursery's."""

    def __init__(self, nursery: Nursery, pid: int) -> None:
        self._nursery = nursery
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None:
            self.returncode = self._nursery.ask("poll", self.pid)
        return self.returncode

    def wait(self, seconds: float = 60) -> int:
        until(lambda: self.poll() is not None, seconds)
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class Nursery:
    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", "from tests.worker import nursery; nursery.serve()"],
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self._one_at_a_time = threading.Lock()

    def start(
        self, words: list[str], environment: Mapping[str, str], log: Path, answer: Path = Path(os.devnull)
    ) -> Process:
        """``words`` are those after ``tampu``; standard error goes to the log, standard output to the answer."""
        return Process(self, self.ask("start", words, dict(environment), str(log), str(answer)))

    def ask(self, *request: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._one_at_a_time:
            print(json.dumps(request), file=self._process.stdin, flush=True)
            return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        with self._process:
            assert self._process.stdin is not None
            self._process.stdin.close()


@functools.cache
def nursery() -> Nursery:
    """One for all tests of this process."""
    made = Nursery()
    atexit.register(made.close)
    return made


def serve() -> None:
    """The nursery's own process, until its test process is gone; and each that it starts, which ends here too."""
    for name in IMPORTED:
        importlib.import_module(name)
    for line in sys.stdin:
        verb, *rest = json.loads(line)
        if verb == "poll":
            pid, status = os.waitpid(rest[0], os.WNOHANG)
            print(json.dumps(os.waitstatus_to_exitcode(status) if pid else None), flush=True)
            continue
        pid = os.fork()
        if pid == 0:
            _become(*rest)
            return
        print(pid, flush=True)


def _become(words: list[str], environment: dict[str, str], log: str, answer: str) -> None:
    for number, path in enumerate((os.devnull, answer, log)):
        os.dup2(os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT), number)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["tampu", *words]
    main = importlib.import_module("tampu.cli.main").main
    main()
