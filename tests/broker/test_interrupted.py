"""Callers that go away in the middle: cancelled tasks, transactions that were only being entered."""

from __future__ import annotations

import asyncio
import itertools
import linecache
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import tampu
from tampu.broker import access
from tampu.broker.commit_queue import coalescer
from tampu.engines import port
from tests.conformance.harness import until

PATIENCE = 60.0


def test_what_was_claimed_for_a_cancelled_task_goes_back_uncounted(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with tampu.open_async(tmp_path / "jobs.db", maintenance=False) as store:
            await store.publish("jobs", 1, max_attempts=1)
            engine: Any = access.engine(store._open)
            carry_out, claimed, go_on = engine.run, threading.Event(), threading.Event()

            def run(calls: Sequence[port.Call]) -> list[Any]:
                replies: list[Any] = carry_out(calls)
                claimed.set()
                assert go_on.wait(PATIENCE)
                return replies

            engine.run = run
            task = asyncio.create_task(store.claim("jobs"))
            assert await asyncio.to_thread(claimed.wait, PATIENCE)
            task.cancel()
            await asyncio.wait([task])
            assert task.cancelled()
            engine.run = carry_out
            go_on.set()
            (lease,) = await store.claim("jobs", wait=PATIENCE)
            assert lease.attempt == 1

    asyncio.run(scenario())


def test_a_task_cancelled_between_the_reply_and_its_turn_gives_the_messages_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> None:
        async with tampu.open_async("memory://", maintenance=False) as store:
            await store.publish("jobs", 1, max_attempts=1)
            task = asyncio.create_task(store.claim("jobs"))
            answer = coalescer._answer

            def answer_and_cancel(answers: Any) -> None:
                answer(answers)
                task.cancel()

            with monkeypatch.context() as patch:
                patch.setattr(coalescer, "_answer", answer_and_cancel)
                await asyncio.wait([task])
            assert task.cancelled()
            (lease,) = await store.claim("jobs", wait=PATIENCE)
            assert lease.attempt == 1

    asyncio.run(scenario())


def test_a_task_that_waits_to_enter_a_transaction_can_be_cancelled(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with tampu.open_async(tmp_path / "jobs.db", maintenance=False) as store:

            async def second() -> None:
                async with store.transaction() as tx:
                    await tx.publish("second", 1)

            async with store.transaction() as tx:
                task = asyncio.create_task(second())
                while len(store._inside) < 2:
                    await asyncio.sleep(0)
                task.cancel()
                await asyncio.wait([task])
                await tx.publish("first", 1)
            await store.publish("third", 1)
            assert await store.queues.list() == ["first", "third"]

    asyncio.run(asyncio.wait_for(scenario(), PATIENCE))


@pytest.mark.parametrize("url", ["memory://", "jobs.db"])
def test_other_tasks_wait_for_a_transaction_and_the_loop_goes_on(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    async def scenario() -> None:
        async with tampu.open_async(url, maintenance=False) as store:
            async with store.transaction() as tx:
                await tx.publish("inside", 1)
                other = asyncio.create_task(store.publish("outside", 1))
                await asyncio.wait([other], timeout=0.15)  # longer than settings are kept
                assert not other.done()
                await tx.publish("inside", 2)
            await other
            assert (await store.stats("inside")).ready == 2

    asyncio.run(asyncio.wait_for(scenario(), PATIENCE))


def test_a_task_inside_a_transaction_is_asked_to_use_it() -> None:
    async def scenario() -> None:
        async with tampu.open_async("memory://", maintenance=False) as store:
            async with store.transaction():
                with pytest.raises(tampu.InvalidState):
                    await store.publish("jobs", 1)
                with pytest.raises(tampu.InvalidState):
                    async with store.transaction():
                        pass
            await store.publish("jobs", 1)

    asyncio.run(scenario())


class Interrupt(BaseException):
    pass


def interrupted(call: Callable[[], object], at: int) -> str | None:
    """Interrupt a call at the so-manyeth line of the coalescer that it comes to; in which function that was.

    Not at a ``with``: a trace comes there between the block and its end, where no interrupt ever does.
    """
    hit: list[str] = []
    lines = itertools.count(1)

    def trace(frame: FrameType, event: str, _: object) -> Any:
        if frame.f_code.co_filename != coalescer.__file__:
            return None
        text = linecache.getline(coalescer.__file__, frame.f_lineno).lstrip()
        if event == "line" and not text.startswith("with ") and next(lines) == at:
            hit.append(frame.f_code.co_name)
            raise Interrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    except Interrupt:
        pass
    finally:
        sys.settrace(before)
    return hit[0] if hit else None


def test_an_interrupt_at_any_line_leaves_a_store_that_works() -> None:
    with tampu.open("memory://", maintenance=False) as store:
        for at in itertools.count(1):
            where = interrupted(lambda: store.publish("jobs", 1), at)
            until(lambda: not access.core(store).coalescer.busy)
            assert not coalescer.inside_store(threading.get_ident()), (at, where)
            if where is None:
                break
        assert at > 20
        assert store.publish("jobs", 2).state == "ready"


def test_what_an_interrupted_thread_claimed_goes_back_uncounted() -> None:
    lost = []
    for at in itertools.count(1):
        with tampu.open("memory://", maintenance=False) as store:
            store.publish("jobs", 1, max_attempts=1)
            where = interrupted(lambda: store.claim("jobs"), at)
            if where is None:
                break
            if where == "submit" and at > 20:  # its last lines: the caller has its leases
                continue
            until(lambda: not access.core(store).coalescer.busy)
            while access.core(store).coalescer.busy or access.core(store).coalescer._pending:
                store.stats("jobs")
            if not store.stats("jobs").ready:
                lost.append((at, where))
    assert at > 20
    assert len(lost) <= 1, "only between the end of the commit and the line that keeps its replies"


def test_when_no_thread_can_be_had_a_task_leads_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name.startswith("tampu-commits"):
            raise RuntimeError("can't start new thread")
        start(thread)

    async def scenario() -> None:
        async with tampu.open_async("memory://", maintenance=False) as store:
            with monkeypatch.context() as patch:
                patch.setattr(threading.Thread, "start", refuse)
                await asyncio.wait_for(asyncio.gather(*(store.publish("jobs", n) for n in range(5))), PATIENCE)
            await asyncio.wait_for(store.publish("jobs", 5), PATIENCE)
            assert (await store.stats("jobs")).ready == 6

    asyncio.run(scenario())


def test_it_is_known_who_is_in_a_commit_and_must_not_be_interrupted() -> None:
    with tampu.open("memory://", maintenance=False) as store:
        engine: Any = access.engine(store)
        carry_out, seen = engine.run, []

        def run(calls: Sequence[port.Call]) -> list[Any]:
            seen.append(coalescer.inside_store(threading.get_ident()))
            if calls[0].queue == "broken":  # type: ignore[union-attr]  # only publishes come here
                raise ZeroDivisionError
            replies: list[Any] = carry_out(calls)
            return replies

        engine.run = run
        store.publish("jobs", 1)
        with pytest.raises(ZeroDivisionError):
            store.publish("broken", 1)
        assert seen == [True, True]
        assert not coalescer.inside_store(threading.get_ident())
