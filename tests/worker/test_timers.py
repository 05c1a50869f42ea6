"""What a worker looks at every moment: timeouts, progress, signs of life. Nothing a task does may end or delay it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

import tampu
from tampu.worker.repeat import Repeat
from tests.worker import shop
from tests.worker.crew import PATIENCE, wait


@pytest.fixture
def go() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


def _until_raised() -> None:
    while True:
        threading.Event().wait(0.01)


@pytest.mark.parametrize("error", [tampu.Unavailable("gone"), tampu.RateLimited("slow down"), tampu.LeaseLost("gone")])
def test_progress_that_cannot_be_stored_stops_no_timeout(
    memory: tampu.App, go: threading.Event, monkeypatch: pytest.MonkeyPatch, error: tampu.TampuError
) -> None:
    tried = threading.Event()

    def refuse(*_: Any) -> None:
        tried.set()
        raise error

    @memory.task
    def moves() -> None:
        tampu.current().progress(0.5)
        assert go.wait(PATIENCE)

    slow = memory.task(name="slow", timeout=0.05, max_attempts=1)(_until_raised)
    with tampu.working(memory) as runner:
        monkeypatch.setattr(runner._task_store, "write_note", refuse)  # a store that is gone
        moves.publish()
        assert tried.wait(PATIENCE)
        with pytest.raises(tampu.TaskFailed, match="TimedOut"):
            slow.publish().result(PATIENCE)
        go.set()


def test_progress_is_stored_when_the_store_is_back(
    memory: tampu.App, go: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tampu.worker.runner._BEAT_SECONDS", 0.01)
    tries = 0

    @memory.task
    def moves() -> None:
        tampu.current().progress(0.5, "half")
        assert go.wait(PATIENCE)

    with tampu.working(memory) as runner:
        real = runner._task_store.write_note

        def refuse(*given: Any) -> None:
            nonlocal tries
            tries += 1
            if tries < 4:
                raise tampu.Unavailable("gone")
            real(*given)

        monkeypatch.setattr(runner._task_store, "write_note", refuse)  # a store that is gone for a while
        published = moves.publish()
        wait(lambda: published.progress() == (0.5, "half"))
        go.set()


def test_progress_that_is_refused_for_good_harms_no_other(
    memory: tampu.App, go: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    @memory.task
    def moves(note: str) -> None:
        tampu.current().progress(0.5, note)
        assert go.wait(PATIENCE)

    with tampu.working(memory):
        moves.publish("x" * 100_000)
        wait(lambda: "its progress cannot be stored" in caplog.text)
        published = moves.publish("half")
        wait(lambda: published.progress() == (0.5, "half"))
        go.set()


def test_blocked_loop_delays_no_timeout_of_threads_and_children(shop_app: tampu.App, go: threading.Event) -> None:
    blocked = threading.Event()

    async def block() -> None:
        blocked.set()
        assert go.wait(PATIENCE)

    name = "test_blocked_loop"
    try:
        blocker: Any = shop_app.task(name=name)(block)
        slow: Any = shop_app.task(name=f"{name}.slow", timeout=0.3, max_attempts=1)(_until_raised)
        with tampu.working(shop_app, children=1) as runner:
            late = [slow.publish(), shop.never_ends.publish()]
            pools = (runner._thread_pool, runner._process_pool)
            wait(lambda: all(pool.running or _is_dead(shop_app, one) for pool, one in zip(pools, late, strict=True)))
            blocker.publish()
            assert blocked.wait(PATIENCE)
            for one in late:
                with pytest.raises(tampu.TaskFailed, match="TimedOut"):
                    one.result(PATIENCE)
            go.set()
    finally:
        for left in (name, f"{name}.slow"):
            shop_app.tasks.pop(left, None)


def _is_dead(app: tampu.App, published: tampu.Published[Any]) -> bool:
    """On a busy machine one may have timed out before the other has begun."""
    return app.store.get(published.id).state == "dead"


def test_an_error_does_not_end_what_is_done_every_so_often(caplog: pytest.LogCaptureFixture) -> None:
    done = threading.Semaphore(0)

    def act() -> bool:
        done.release()
        raise ValueError("not today")

    ticks = Repeat("tampu-test", 0.001, act)
    ticks.wake()
    for _ in range(3):
        assert done.acquire(timeout=PATIENCE)
    ticks.close(PATIENCE)
    assert "tampu-test continues after an error" in caplog.text
