"""A worker that is asked to stop ends, whatever its tasks and its store do, and gives back what it has not finished."""

from __future__ import annotations

import asyncio
import importlib
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tampu
from tampu.worker.claimer import Claimer
from tests.servers.redis import DURABLE, Server, redis_binary
from tests.worker import shop
from tests.worker.crew import PATIENCE, Crew, crew, wait


@pytest.fixture
def go() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """What does not end is given up soon."""
    monkeypatch.setattr("tampu.worker.runner._INTERRUPT_SECONDS", 0.05)
    for module in ("runner", "pools.event_loop", "settle_queue"):
        monkeypatch.setattr(f"tampu.worker.{module}._LAST_SECONDS", 0.05)


class Running:
    """A runner in a thread, and what it returned."""

    def __init__(self, app: tampu.App, **options: Any) -> None:
        self.runner = tampu.Runner(app, tampu.RunnerOptions(**options))
        self.left: int | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        assert self.runner.started.wait(PATIENCE)

    def _run(self) -> None:
        self.left = self.runner.run()

    def stop(self) -> int | None:
        self.runner.stop()
        self._thread.join(PATIENCE)
        return self.left


def test_what_a_claim_brings_while_the_worker_is_stopped_is_given_back(
    app: tampu.App, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim, stopped, running = Claimer._claim, threading.Event(), list[Running]()
    started = threading.Event()

    def claim_and_stop(claimer: Claimer, limit: int) -> Any:
        leases = claim(claimer, limit)
        if leases and not stopped.is_set():
            stopped.set()
            assert started.wait(PATIENCE)
            running[0].runner.stop()
            claimer.stop()
        return leases

    monkeypatch.setattr(Claimer, "_claim", claim_and_stop)
    task = app.task(name="work")(lambda: None)
    ids = [one.id for one in app.publish_many([task.message() for _ in range(5)])]
    running.append(Running(app))
    started.set()
    assert stopped.wait(PATIENCE)
    assert running[0].stop() == 0
    assert [(app.store.get(id).state, app.store.get(id).attempts) for id in ids] == [("ready", 0)] * 5


_SLOW = """
import multiprocessing, pathlib, threading, tampu

HERE = pathlib.Path(__file__).parent
app = tampu.App("memory://")
if multiprocessing.parent_process() is not None:
    (HERE / "importing").touch()
    while not (HERE / "go").exists():
        threading.Event().wait(0.01)

@app.task(execution="process")
def job() -> None:
    (HERE / "begun").touch()
"""


def test_child_that_is_still_starting_begins_nothing_after_the_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "slow_to_import.py").write_text(_SLOW)
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("slow_to_import")
    with module.app as app:
        published = module.job.publish()
        with tampu.working(app, children=1) as runner:
            wait((tmp_path / "importing").exists)
            runner.stop()
            (tmp_path / "go").touch()
        found = app.store.get(published.id)
    assert not (tmp_path / "begun").exists()
    assert (found.state, found.attempts) == ("ready", 0)


@pytest.mark.usefixtures("hasty")
def test_coroutine_that_swallows_its_cancellation_is_given_back_and_not_waited_for(
    memory: tampu.App, go: threading.Event
) -> None:
    begun = threading.Event()

    @memory.task
    async def stubborn() -> None:
        begun.set()
        while not go.is_set():
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                continue

    running = Running(memory, grace=0.05)
    published = stubborn.publish()
    assert begun.wait(PATIENCE)
    assert running.stop() == 0
    found = memory.store.get(published.id)
    assert (found.state, found.attempts) == ("ready", 0)


@pytest.mark.usefixtures("hasty")
def test_thread_that_a_coroutine_has_started_is_not_waited_for(memory: tampu.App, go: threading.Event) -> None:
    begun = threading.Event()

    @memory.task
    async def waits() -> None:
        begun.set()
        await asyncio.to_thread(go.wait, PATIENCE)

    running = Running(memory, grace=0.05)
    published = waits.publish()
    assert begun.wait(PATIENCE)
    assert running.stop() == 0
    assert not go.is_set()
    found = memory.store.get(published.id)
    assert (found.state, found.attempts) == ("ready", 0)


@pytest.mark.usefixtures("hasty")
def test_settlement_that_is_never_answered_is_reported_and_not_waited_for(
    memory: tampu.App, go: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, settle = threading.Event(), memory.store.settle

    def hang(settlements: Any) -> Any:
        asked.set()
        assert go.wait(PATIENCE)
        return settle(settlements)

    monkeypatch.setattr(memory.store, "settle", hang)
    task = memory.task(name="work")(lambda: None)
    running = Running(memory, grace=0.05)
    task.publish()
    assert asked.wait(PATIENCE)
    assert running.stop() == 1
    assert not go.is_set()


@pytest.mark.usefixtures("hasty")
def test_claim_that_is_never_answered_is_reported_and_not_waited_for(
    memory: tampu.App, go: threading.Event, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked = threading.Event()

    def hang(*_: Any) -> list[Any]:
        asked.set()
        assert go.wait(PATIENCE)
        return []

    monkeypatch.setattr(Claimer, "_claim", hang)
    running = Running(memory, grace=0.05)
    assert asked.wait(PATIENCE)
    assert running.stop() == 1
    assert not go.is_set()
    assert "a claim was not answered" in caplog.text


def test_settlements_that_are_refused_for_good_are_reported(memory: tampu.App, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = threading.Event()

    def refuse(_: Any) -> Any:
        asked.set()
        raise tampu.Unauthorized("the key was revoked")

    monkeypatch.setattr(memory.store, "settle", refuse)
    task = memory.task(name="work")(lambda: None)
    running = Running(memory)
    task.publish()
    assert asked.wait(PATIENCE)
    assert running.stop() == 1


def test_worker_whose_store_hangs_ends_with_exit_code_1(tmp_path: Path) -> None:
    server = Server(redis_binary(), DURABLE).start()
    try:
        with crew(server.url(), tmp_path) as made, tampu.open(server.url(), maintenance=False) as store:
            store.publish_many("default", [shop.wait_thread.message(1).new])
            worker = made.start("--grace", "0.1")
            wait(lambda: made.count("begun") == 1)
            assert server._process is not None
            os.kill(server._process.pid, signal.SIGSTOP)
            try:
                made.open_gate()
                assert worker.stop() == 1
                assert worker.says("could not be settled because the store did not answer")
            finally:
                os.kill(server._process.pid, signal.SIGCONT)
    finally:
        server.remove()


@pytest.mark.parametrize("task", [shop.wait_async, shop.wait_thread, shop.wait_process], ids=lambda task: task.name)
def test_what_runs_is_given_back_uncounted_when_somebody_asks_twice(
    shop_app: tampu.App, task: tampu.Task[[int], int], tmp_path: Path
) -> None:
    made = Crew("", tmp_path)  # for its effects
    ids = [one.id for one in shop_app.publish_many([task.message(n) for n in range(3)])]
    with tampu.working(shop_app, children=3) as runner:
        wait(lambda: made.count("begun") == 3)
        runner.stop()
        runner.stop(now=True)
    assert [(shop_app.store.get(id).state, shop_app.store.get(id).attempts) for id in ids] == [("ready", 0)] * 3
