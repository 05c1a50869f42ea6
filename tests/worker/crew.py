"""Workers as processes, started and ended by tests."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import tampu
from tests.conformance.harness import until
from tests.worker.nursery import ROOT, Process, nursery

PATIENCE = 240.0
APP = "tests.worker.shop:app"


class Worker:
    """`tampu work`, with the app of tests/worker/shop.py."""

    def __init__(self, url: str, folder: Path, *options: str, as_a_shell: bool) -> None:
        self.log = folder / f"worker-{len(list(folder.glob('worker-*')))}.log"
        self.log.touch()
        words = ["work", APP, *options]
        environment = {**os.environ, "TAMPU_URL": url, "SHOP_FOLDER": str(folder)}
        self.process: subprocess.Popen[bytes] | Process
        if not as_a_shell:
            self.process = nursery().start(words, environment, self.log)
            return
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", "from tampu.cli.main import main; main()", *words],
                cwd=ROOT, env=environment, stderr=log,
            )  # fmt: skip

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        self.send(signal.SIGTERM)
        return self.process.wait(PATIENCE)

    def says(self, text: str) -> bool:
        return text in self.log.read_text()


class Crew:
    """All workers of a test; none is left behind."""

    def __init__(self, url: str, folder: Path, *, as_a_shell: bool = False) -> None:
        self.url, self.folder, self._as_a_shell = url, folder, as_a_shell
        self.workers: list[Worker] = []

    def start(self, *options: str) -> Worker:
        worker = Worker(self.url, self.folder, *options, as_a_shell=self._as_a_shell)
        self.workers.append(worker)
        return worker

    def open_gate(self) -> None:
        (self.folder / "gate").touch()

    def effects(self) -> list[tuple[str, str, int, int]]:
        """(what, id, process, attempt)"""
        try:
            lines = (self.folder / "effects").read_text().splitlines()
        except FileNotFoundError:
            return []
        whole = [words for words in (line.split() for line in lines) if len(words) == 4]  # the last is being written
        return [(w, id, int(pid), int(n)) for w, id, pid, n in whole]

    def count(self, what: str) -> int:
        return sum(1 for line in self.effects() if line[0] == what)

    def end(self) -> None:
        for worker in self.workers:
            if worker.process.poll() is None:
                worker.send(signal.SIGCONT)
                worker.kill()


@contextlib.contextmanager
def crew(url: str, folder: Path, *, as_a_shell: bool = False) -> Iterator[Crew]:
    """``as_a_shell``: workers are started as a shell does, which takes a second for each."""
    made = Crew(url, folder, as_a_shell=as_a_shell)
    try:
        yield made
    except BaseException:
        for worker in made.workers:
            print(f"--- {worker.log.name}\n{worker.log.read_text()[-4000:]}")
        raise
    finally:
        made.end()


def wait(condition: object) -> None:
    until(condition, PATIENCE)  # type: ignore[arg-type]  # a callable


def completions(store: tampu.Store) -> Counter[str]:
    """How many acks of each message were accepted, by the journal."""
    found: Counter[str] = Counter()
    page = store.journal(limit=100_000)
    while page.transitions:
        found.update(moved.id for moved in page.transitions if moved.verb == "ack")
        page = store.journal(after=page.position, limit=100_000)
    return found
