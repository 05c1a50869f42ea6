"""Timeouts and cancellations of plain functions: raised where they harm nobody else, and not to be overlooked."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

import pytest

import tampu
from tampu.broker import access
from tampu.engines import port
from tampu.worker.exceptions import TimedOut
from tampu.worker.pools import interrupt
from tampu.worker.pools.thread_pool import ThreadPool
from tests.worker.crew import PATIENCE, wait


def test_timeout_inside_a_commit_waits_until_it_is_done(memory: tampu.App, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commit may be for others too."""
    store, outcome = memory.store, list[str]()
    engine: Any = access.engine(store)
    carry_out = engine.run

    def run(calls: Sequence[port.Call]) -> list[Any]:
        if not any(isinstance(call, port.Publish) and call.queue == "other" for call in calls):
            return carry_out(calls)  # type: ignore[no-any-return]  # of any engine
        try:
            wait(lambda: threading.get_ident() in interrupt._pending)  # Python runs here: it could be raised now
            replies: list[Any] = carry_out(calls)
        except BaseException as error:
            outcome.append(f"interrupted by {error!r}")
            raise
        outcome.append("done")
        return replies

    @memory.task(timeout=0.05, max_attempts=1)
    def publishes() -> None:
        store.publish("other", 1)
        outcome.append("went on")

    monkeypatch.setattr(engine, "run", run)
    with tampu.working(memory), pytest.raises(tampu.TaskFailed, match="TimedOut"):
        publishes.publish().result(PATIENCE)
    assert outcome == ["done"]
    assert store.stats("other").ready == 1


def test_publishers_beside_tasks_that_time_out_get_true_answers(app: tampu.App) -> None:
    store, end, published, failed = app.store, threading.Event(), list[int](), list[BaseException]()

    @app.task(timeout=0.02, max_attempts=1)
    def busy() -> None:
        while True:
            store.publish("other", "from a task")

    def bystander() -> None:
        try:
            while not end.is_set():
                store.publish("other", len(published))
                published.append(1)
        except BaseException as error:
            failed.append(error)

    other = threading.Thread(target=bystander)
    with tampu.working(app, concurrency=4):
        other.start()
        for one in app.publish_many([busy.message() for _ in range(20)]):
            with pytest.raises(tampu.TaskFailed, match="TimedOut"):
                one.result(PATIENCE)
        end.set()
        other.join()
    assert failed == []
    payloads = list[Any]()
    while leases := store.claim("other", limit=1000, lease=600):
        payloads += [lease.message.payload for lease in leases]
    assert sorted(n for n in payloads if n != "from a task") == list(range(len(published)))


def test_timeout_is_no_exception_that_a_step_of_the_task_may_swallow(memory: tampu.App) -> None:
    swallowed: list[Exception] = []

    @memory.task(timeout=0.05, max_attempts=1)
    def polls() -> None:
        while True:
            try:
                threading.Event().wait(0.01)
            except Exception as error:
                swallowed.append(error)

    with tampu.working(memory), pytest.raises(tampu.TaskFailed, match="TimedOut"):
        polls.publish().result(PATIENCE)
    assert swallowed == []


@pytest.mark.parametrize("is_async", [False, True])
def test_task_that_goes_on_after_its_timeout_is_interrupted_again(
    memory: tampu.App, is_async: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tampu.worker.pools.stopper._AGAIN_SECONDS", 0.01)
    seen: list[BaseException] = []

    def stubborn() -> None:
        while len(seen) < 3:
            try:
                threading.Event().wait(0.01)
            except BaseException as error:
                seen.append(error)

    async def stubborn_async() -> None:
        while len(seen) < 3:
            try:
                await asyncio.sleep(0.01)
            except BaseException as error:
                seen.append(error)

    task: Any = memory.task(name="stubborn", timeout=0.05)(stubborn_async if is_async else stubborn)
    with tampu.working(memory):
        assert task.publish().result(PATIENCE) is None
    assert len(seen) == 3


def test_interruption_that_comes_when_the_function_has_just_ended_leaves_nothing_leased(
    memory: tampu.App, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave, raised = ThreadPool._leave, list[int]()

    def leave_late(self: ThreadPool, *given: Any) -> None:
        if not raised:
            raised.append(1)
            raise TimedOut
        leave(self, *given)

    monkeypatch.setattr(ThreadPool, "_leave", leave_late)

    @memory.task
    def work() -> int:
        return 5

    with tampu.working(memory, concurrency=1):
        assert [work.publish().result(PATIENCE) for _ in range(2)] == [5, 5]
    assert raised == [1]
