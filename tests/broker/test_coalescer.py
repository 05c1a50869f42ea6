"""The coalescer: who waits joins the next commit, each gets its own answer, and nobody is left waiting."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from tampu.broker.commit_queue import coalescer as module
from tampu.broker.commit_queue.coalescer import Coalescer
from tampu.model.errors import NotFound, TampuError, Unavailable

PATIENCE = 60.0


class FakeEngine:
    """Answers a call with twice its number; stands still inside `run` while it is shut."""

    def __init__(self) -> None:
        self.batches: list[list[Any]] = []
        self.threads: list[str] = []
        self.entered = threading.Semaphore(0)
        self.open = threading.Event()
        self.open.set()
        self.fault: Callable[[list[Any]], None] | None = None

    def run(self, calls: Sequence[Any]) -> list[Any]:
        batch = list(calls)
        self.batches.append(batch)
        self.threads.append(threading.current_thread().name)
        self.entered.release()
        assert self.open.wait(PATIENCE)
        if self.fault is not None:
            self.fault(batch)
        return [NotFound(f"no {call}") if isinstance(call, str) else call * 2 for call in batch]

    def begun(self) -> None:
        assert self.entered.acquire(timeout=PATIENCE)


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine()


@pytest.fixture
def calls(engine: FakeEngine) -> Any:
    return Coalescer(engine)


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(40) as threads:
        yield threads


def _pending(calls: Any, count: int) -> None:
    pause, give_up = threading.Event(), time.monotonic() + PATIENCE
    while len(calls._pending) != count:
        assert time.monotonic() < give_up
        pause.wait(0.001)


def _result(future: Future[Any]) -> Any:
    return future.result(timeout=PATIENCE)


def test_a_single_call_runs_at_once_in_its_own_thread(calls: Any, engine: FakeEngine) -> None:
    assert calls.submit(1) == 2
    assert engine.batches == [[1]]
    assert engine.threads == [threading.current_thread().name]


def test_who_comes_during_a_commit_joins_the_next(calls: Any, engine: FakeEngine, pool: ThreadPoolExecutor) -> None:
    engine.open.clear()
    first = pool.submit(calls.submit, 0)
    engine.begun()
    others = [pool.submit(calls.submit, n) for n in range(1, 31)]
    _pending(calls, 30)
    engine.open.set()
    assert _result(first) == 0
    assert [_result(f) for f in others] == [2 * n for n in range(1, 31)]
    assert [len(batch) for batch in engine.batches] == [1, 30]


def test_each_caller_gets_its_own_reply_or_error(calls: Any, engine: FakeEngine, pool: ThreadPoolExecutor) -> None:
    engine.open.clear()
    first = pool.submit(calls.submit, 0)
    engine.begun()
    good, bad = [pool.submit(calls.submit, n) for n in (1, 2)], pool.submit(calls.submit, "x")
    _pending(calls, 3)
    engine.open.set()
    assert [_result(f) for f in (first, *good)] == [0, 2, 4]
    with pytest.raises(NotFound, match="no x"):
        _result(bad)


def test_a_commit_that_fails_fails_all_of_it_and_the_next_works(
    calls: Any, engine: FakeEngine, pool: ThreadPoolExecutor
) -> None:
    engine.open.clear()
    first = pool.submit(calls.submit, 0)
    engine.begun()
    others = [pool.submit(calls.submit, n) for n in range(1, 4)]
    _pending(calls, 3)

    def fault(batch: list[Any]) -> None:
        if 0 not in batch:
            raise Unavailable("gone")

    engine.fault = fault
    engine.open.set()
    assert _result(first) == 0
    for future in others:
        with pytest.raises(Unavailable):
            _result(future)
    engine.fault = None
    assert calls.submit(5) == 10


def test_the_lead_is_handed_over_so_that_no_caller_works_for_others_for_ever(
    calls: Any, engine: FakeEngine, pool: ThreadPoolExecutor
) -> None:
    engine.open.clear()
    first = pool.submit(calls.submit, 0)
    engine.begun()
    second = pool.submit(calls.submit, 1)
    _pending(calls, 1)
    engine.open.set()
    assert (_result(first), _result(second)) == (0, 2)
    assert engine.threads[0] != engine.threads[1]


def test_an_interrupted_leader_does_not_leave_the_others_waiting(
    calls: Any, engine: FakeEngine, pool: ThreadPoolExecutor
) -> None:
    """A caller in the lost commit learns that the outcome is unknown; one that waited leads the next commit."""

    def fault(batch: list[Any]) -> None:
        if 2 in batch:
            raise KeyboardInterrupt

    engine.open.clear()
    engine.fault = fault
    first = pool.submit(calls.submit, 0)
    engine.begun()
    shared = []
    for n in (1, 2, 3):
        shared.append(pool.submit(calls.submit, n))
        _pending(calls, n)
    engine.open.set()
    assert _result(first) == 0
    with pytest.raises(KeyboardInterrupt):
        _result(shared[0])
    for future in shared[1:]:
        with pytest.raises(TampuError):
            _result(future)
    engine.fault = None
    assert calls.submit(5) == 10


def test_a_leader_interrupted_after_its_commit_still_hands_the_lead_on(
    calls: Any, engine: FakeEngine, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    choose, interrupts = calls._next_leader, iter([KeyboardInterrupt()])

    def next_leader() -> Any:
        for interrupt in interrupts:
            raise interrupt
        return choose()

    monkeypatch.setattr(calls, "_next_leader", next_leader)
    engine.open.clear()
    first = pool.submit(calls.submit, 0)
    engine.begun()
    others = [pool.submit(calls.submit, n) for n in range(1, 4)]
    _pending(calls, 3)
    engine.open.set()
    with pytest.raises(KeyboardInterrupt):
        _result(first)
    assert [_result(f) for f in others] == [2, 4, 6]
    assert calls.submit(5) == 10


INTERRUPTED = """
import os, signal, threading, time
from tampu.broker.commit_queue.coalescer import Coalescer

entered, go = threading.Event(), threading.Event()
class Engine:
    def run(self, calls):
        entered.set()
        go.wait(60)
        return [call * 2 for call in calls]
calls = Coalescer(Engine())
answers = {}
def ask(n):
    answers[n] = calls.submit(n)
first = threading.Thread(target=ask, args=(1,))
first.start()
entered.wait(60)
def once(*_):
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    raise KeyboardInterrupt
signal.signal(signal.SIGINT, once)
def interrupt():
    while not calls._pending:
        pass
    while signal.getsignal(signal.SIGINT) is once:  # Python misses one that comes just before it begins to wait
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.05)
threading.Thread(target=interrupt).start()
try:
    calls.submit(2)
except KeyboardInterrupt:
    answers[2] = "interrupted"
third = threading.Thread(target=ask, args=(3,), daemon=True)
third.start()
while not any(ticket.call == 3 for ticket in list(calls._pending)):
    pass
go.set()
first.join(60)
third.join(60)
assert answers == {1: 2, 2: "interrupted", 3: 6}, answers
assert calls.submit(4) == 8
"""


def test_an_interrupted_follower_does_not_leave_the_others_waiting() -> None:
    """A caller that waited for its turn walks away; it would have been the next to lead."""
    subprocess.run([sys.executable, "-c", INTERRUPTED], check=True, timeout=90)


def test_tasks_of_one_turn_of_the_loop_share_a_commit(calls: Any, engine: FakeEngine) -> None:
    async def main() -> Any:
        return await asyncio.gather(*(calls.submit_async(n) for n in range(50)))

    assert asyncio.run(main()) == [2 * n for n in range(50)]
    assert [len(batch) for batch in engine.batches] == [50]
    calls.close()


def test_tasks_never_run_a_commit_in_the_loop_s_thread(calls: Any, engine: FakeEngine) -> None:
    engine.open.clear()

    async def main() -> list[Any]:
        tasks = [asyncio.create_task(calls.submit_async(n)) for n in (1, "x")]
        while not engine.batches:
            await asyncio.sleep(0)
        engine.open.set()
        return await asyncio.gather(*tasks, return_exceptions=True)

    one, missing = asyncio.run(main())
    assert one == 2
    assert isinstance(missing, NotFound)
    assert threading.current_thread().name not in engine.threads
    calls.close()


def test_threads_and_tasks_join_the_same_commits(calls: Any, engine: FakeEngine, pool: ThreadPoolExecutor) -> None:
    engine.open.clear()
    first = pool.submit(calls.submit, 0)
    engine.begun()

    async def main() -> Any:
        tasks = [asyncio.create_task(calls.submit_async(n)) for n in range(1, 6)]
        await asyncio.sleep(0)
        threads = [pool.submit(calls.submit, n) for n in range(6, 11)]
        _pending(calls, 10)
        engine.open.set()
        return await asyncio.gather(*tasks, *(asyncio.wrap_future(f) for f in threads))

    assert asyncio.run(main()) == [2 * n for n in range(1, 11)]
    assert _result(first) == 0
    assert [len(batch) for batch in engine.batches] == [1, 10]
    calls.close()


def test_a_task_that_is_cancelled_does_not_disturb_the_others(calls: Any, engine: FakeEngine) -> None:
    engine.open.clear()

    async def main() -> int:
        first = asyncio.create_task(calls.submit_async(1))
        while not engine.batches:
            await asyncio.sleep(0)
        gone, kept = [asyncio.create_task(calls.submit_async(n)) for n in (2, 3)]
        await asyncio.sleep(0)
        gone.cancel()
        first.cancel()
        engine.open.set()
        ends = await asyncio.gather(gone, first, return_exceptions=True)
        assert [type(end) for end in ends] == [asyncio.CancelledError] * 2
        return int(await kept)

    assert asyncio.run(main()) == 6
    calls.close()


def test_a_thread_that_leads_before_a_flood_of_tasks_still_gets_its_own_reply(
    calls: Any, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST", 10)

    async def main() -> Any:
        tasks = [asyncio.create_task(calls.submit_async(n)) for n in range(25)]
        await asyncio.sleep(0)
        assert calls.submit(100) == 200
        return await asyncio.gather(*tasks)

    assert asyncio.run(main()) == [2 * n for n in range(25)]
    assert max(len(batch) for batch in engine.batches) <= 10
    calls.close()


def test_a_task_that_calls_after_closing_gets_the_engine_s_answer(calls: Any, engine: FakeEngine) -> None:
    async def main() -> None:
        assert await calls.submit_async(1) == 2
        calls.close()

        def fault(batch: list[Any]) -> None:
            raise Unavailable("closed")

        engine.fault = fault
        with pytest.raises(Unavailable):
            await asyncio.wait_for(calls.submit_async(2), PATIENCE)

    asyncio.run(main())
    calls.close()


def test_a_loop_that_is_gone_does_not_stop_the_others(calls: Any, engine: FakeEngine, pool: ThreadPoolExecutor) -> None:
    engine.open.clear()
    loop = asyncio.new_event_loop()
    first = pool.submit(calls.submit, 0)
    engine.begun()
    orphan = loop.create_task(calls.submit_async(1))
    loop.run_until_complete(asyncio.sleep(0))
    orphan.cancel()
    loop.run_until_complete(asyncio.gather(orphan, return_exceptions=True))
    loop.close()
    other = pool.submit(calls.submit, 2)
    _pending(calls, 2)
    engine.open.set()
    assert (_result(first), _result(other)) == (0, 4)
