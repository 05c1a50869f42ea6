"""What a worker that is asked to stop does with prefetched messages."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

import tampu
from tampu.worker.prefetch import Prefetch
from tests.worker import shop
from tests.worker.crew import Crew, wait

HELD = 12


@pytest.fixture(autouse=True)
def ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """All is claimed at once, as if tasks were quick."""
    monkeypatch.setattr(Prefetch, "to_claim", lambda _, held: HELD - held)


@pytest.mark.parametrize("task", [shop.wait_async, shop.wait_thread, shop.wait_process], ids=lambda task: task.name)
def test_what_was_claimed_ahead_is_given_back_and_never_begun(
    shop_app: tampu.App, task: tampu.Task[[int], int], tmp_path: Path
) -> None:
    made = Crew("", tmp_path)  # for its effects and its gate
    ids = {one.id for one in shop_app.publish_many([task.message(n) for n in range(HELD)])}
    with tampu.working(shop_app, concurrency=2, children=2) as runner:
        wait(lambda: (runner.held, made.count("begun")) == (HELD, 2))
        begun = {id for _, id, _, _ in made.effects()}
        runner.stop()
        wait(lambda: shop_app.store.stats("default").ready == HELD - 2)
        made.open_gate()
    assert {id for _, id, _, _ in made.effects()} == begun
    found = {id: shop_app.store.get(id) for id in ids}
    assert {id for id, m in found.items() if (m.state, m.attempts) == ("done", 1)} == begun
    assert {id for id, m in found.items() if (m.state, m.attempts) == ("ready", 0)} == ids - begun


def test_nothing_is_begun_after_the_stop_while_a_task_blocks_the_loop(memory: tampu.App) -> None:
    blocking, go, loop_goes_on = threading.Event(), threading.Event(), threading.Event()
    begun: list[int] = []

    @memory.task
    async def block() -> None:
        blocking.set()
        assert loop_goes_on.wait(90)

    @memory.task
    def work(n: int) -> None:
        begun.append(n)
        assert go.wait(90)

    memory.publish_many([work.message(n) for n in range(HELD - 1)])
    with tampu.working(memory, concurrency=2) as runner:
        wait(lambda: len(begun) == 2)
        block.publish()
        assert blocking.wait(90)
        runner.stop()
        go.set()
        wait(lambda: not runner._thread_pool.running)
        loop_goes_on.set()
    assert begun == [0, 1]
    assert memory.store.stats("default").ready == HELD - 3


def test_a_worker_that_has_ended_leaves_no_thread(
    shop_app: tampu.App, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tampu.worker.pools.thread_pool._IDLE_SECONDS", 3600)
    Crew("", tmp_path).open_gate()
    before = set(threading.enumerate())

    def left() -> list[threading.Thread]:
        return [one for one in set(threading.enumerate()) - before if one.name == "tampu-task"]

    with tampu.working(shop_app, concurrency=4):
        for sent in shop_app.publish_many([shop.wait_thread.message(n) for n in range(8)]):
            sent.result(timeout=60)
        assert left()
    wait(lambda: not left())


_TRACED = """
import sys, threading, tampu

app = tampu.App("memory://")

@app.task
def quick() -> int:
    return 1

@app.task(timeout=0.05, max_attempts=1)
def slow() -> None:
    while True:
        threading.Event().wait(0.001)

with tampu.working(app):
    assert quick.publish().result(timeout=60) == 1
    try:
        slow.publish().result(timeout=60)
    except tampu.TaskFailed as error:
        assert "TimedOut" in str(error), error
    assert quick.publish().result(timeout=60) == 1
sys.settrace(lambda *_: None)
quick.function()
sys.settrace(None)
"""


def test_a_program_can_be_traced_after_it_has_run_plain_functions() -> None:
    subprocess.run([sys.executable, "-c", _TRACED], check=True, timeout=120)
