"""A move that is killed anywhere goes on: nothing lost, nothing doubled."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import tampu
from tampu.broker.transfer import Move, Report, TransferOptions
from tampu.engines.port import Engine
from tests.broker.transfer import stores
from tests.broker.transfer.stores import ROUND, URLS, contents, documents_of, imported, move, opened
from tests.conformance.harness import FakeClock

TAMPU = [sys.executable, "-c", "from tampu.cli.main import main; main()"]


class Killed(BaseException):
    """As a kill: nothing in between may catch it."""


class Doomed:
    """An engine that dies at its n-th write, before it or after it; reads and clocks are the engine's own."""

    def __init__(self, engine: Engine, countdown: list[int], *, after: bool) -> None:
        self._engine = engine
        self._countdown = countdown
        self._after = after

    def run(self, calls: Sequence[Any]) -> list[Any]:
        self._countdown[0] -= 1
        if self._countdown[0] == 0 and not self._after:
            raise Killed
        replies = self._engine.run(calls)
        if self._countdown[0] == 0:
            raise Killed
        return replies

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)


def _run(here: Any, there: Any, **options: Any) -> Report:
    chosen = TransferOptions(**{"wait_seconds": 0, "ended": True, **options})
    return Move(here, there, chosen, origin="old", goal="new").run()


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_killed_at_any_write_it_goes_on(after: bool, tmp_path: Path) -> None:
    """At each write of a whole move, on both sides, once before it and once after it."""
    clock = FakeClock()
    step, ended = 0, False
    while not ended:
        step += 1
        with opened("memory://", "memory://", clock=clock) as (here, there):
            _small(here)
            expected, documents = contents(here), documents_of(here)
            countdown = [step]
            try:
                _run(Doomed(here, countdown, after=after), Doomed(there, countdown, after=after))
                ended = True
            except Killed:
                _run(here, there)
            assert contents(there) == expected, step
            assert documents_of(there) == documents, step
            assert contents(here) == expected, step
            assert len(imported(there)) == len(set(imported(there))) == sum(map(len, expected.values()))
            assert _run(here, there).was_done
    assert step > 30


def _small(engine: Engine) -> None:
    """Some messages in several states, of two tenants, on an engine that only this process can have."""
    from tampu.broker.core import Core
    from tampu.broker.store import Store

    core = Core(engine)
    for tenant in ("default", "acme"):
        store = Store(core, tenant, on_close=lambda: None)
        store.queues.put("jobs", max_attempts=1, ordering="priority")
        store.queues.put("*", result_ttl=60)
        store.publish_many("jobs", range(4))
        store.reject(store.claim("jobs")[0], "bad")
        store.publish("jobs", "once", idempotency_key="i", delay=60)
        store.publish("bare", 1)


@pytest.mark.parametrize(("old", "new"), ROUND)
def test_sigkill_in_the_middle_loses_and_doubles_nothing(old: str, new: str, tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    source, target = URLS[old](tmp_path), URLS[new](tmp_path)
    with tampu.open(source, maintenance=False) as store:
        ids = [m.id for part in range(3) for m in store.publish_many("jobs", range(part * 1000, part * 1000 + 1000))]
        store.publish_many("more", range(500))
    with opened(target, clock=None) as (there,):
        for turn in range(2):
            process = subprocess.Popen(
                [*TAMPU, "copy", source, target, "--json"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            _when(there, turn * 1500 + chance.randrange(1000), process)
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
        last = subprocess.run([*TAMPU, "copy", source, target, "--json"], capture_output=True, text=True, check=False)
        assert last.returncode == 0, last.stderr
        assert len(set(imported(there))) == len(imported(there)) == 3500
    with tampu.open(target, maintenance=False) as store:
        assert [lease.id for lease in store.claim("jobs", limit=5000)] == ids
        assert len(store.claim("more", limit=5000)) == 500


def _when(there: Engine, count: int, process: subprocess.Popen[bytes]) -> None:
    """So many messages have come, or the move is over."""
    pause = threading.Event()
    while process.poll() is None:
        if sum(sum(stats.counts.values()) for stats in there.stats("default", None)) > count:
            return
        pause.wait(0.002)


def test_two_moves_at_once_double_nothing(tmp_path: Path) -> None:
    clock = FakeClock()
    source, target = URLS["file"](tmp_path), URLS["postgres"](tmp_path)
    stores.fill(source, clock)
    done: list[Report | BaseException] = []

    def run() -> None:
        try:
            done.append(move(source, target, clock, ended=True))
        except tampu.TampuError as error:  # the other one was ahead
            done.append(error)

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    move(source, target, clock, ended=True)
    with opened(source, target, clock=clock) as (here, there):
        assert contents(there) == contents(here)
        assert len(imported(there)) == len(set(imported(there)))
