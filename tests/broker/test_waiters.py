"""Who is woken when; mostly without an engine."""

import asyncio
import threading
from typing import Any
from unittest.mock import Mock

import pytest

import tampu
from tampu.broker import access
from tampu.broker.commit_queue.waiters import Waiter, Waiters
from tampu.engines import port

A, B = ("t", "a"), ("t", "b")


def _line(waiting: Waiters, count: int, *queues: tuple[str, str]) -> list[Waiter]:
    line = [Waiter(queues or [A], None) for _ in range(count)]
    for waiter in line:
        waiting.join(waiter)
    return line


def test_as_many_are_woken_as_there_are_messages_longest_waiting_first() -> None:
    waiting = Waiters()
    line = _line(waiting, 4)
    waiting.wake({A: 2})
    assert [w.woken for w in line] == [True, True, False, False]
    waiting.wake({A: 1})
    assert [w.woken for w in line] == [True, True, True, False]


def test_other_queues_wake_nobody() -> None:
    waiting = Waiters()
    line = _line(waiting, 2)
    waiting.wake({B: 5, ("u", "a"): 5})
    assert not any(w.woken for w in line)


def test_a_waiter_on_several_queues_is_woken_once() -> None:
    waiting = Waiters()
    both, only_b = _line(waiting, 1, A, B)[0], _line(waiting, 1, B)[0]
    waiting.wake({A: 1, B: 1})
    assert (both.woken, only_b.woken) == (True, True)


def test_who_left_is_not_woken_in_place_of_another() -> None:
    waiting = Waiters()
    first, second = _line(waiting, 2)
    waiting.leave(first)
    waiting.wake({A: 1})
    assert (first.woken, second.woken) == (False, True)


def test_leaving_twice_is_fine() -> None:
    waiting = Waiters()
    (waiter,) = _line(waiting, 1)
    waiting.leave(waiter)
    waiting.leave(waiter)


def test_looking_asks_only_for_queues_somebody_waits_on(monkeypatch: pytest.MonkeyPatch) -> None:
    with tampu.open("memory://", maintenance=False) as store:
        core: Any = access.core(store)
        asked: list[list[tuple[str, str]]] = []
        poll_status = core.engine.poll_status

        def noted(queues: list[tuple[str, str]]) -> Any:
            asked.append(queues)
            return poll_status(queues)

        monkeypatch.setattr(core.engine, "poll_status", noted)
        core.wake_waiters()
        assert asked == []
        (waiter,) = _line(core.waiting, 1, ("default", "jobs"))
        store.publish("other", 1)
        core.wake_waiters()
        assert not waiter.woken
        core.engine.listen(Mock(spec=port.Listener))  # nobody tells
        store.publish("jobs", 1)
        core.wake_waiters()
        assert asked == [[("default", "jobs")]] * 2
        assert waiter.woken


def test_wake_all_wakes_all() -> None:
    waiting = Waiters()
    line = _line(waiting, 3) + _line(waiting, 2, B)
    waiting.wake_all()
    assert all(w.woken for w in line)


def test_a_thread_sleeps_until_it_is_woken() -> None:
    waiter = Waiter([A], None)
    done = threading.Event()

    def sleep() -> None:
        waiter.wait(60)
        done.set()

    threading.Thread(target=sleep, daemon=True).start()
    assert not done.is_set()
    waiter.wake()
    assert done.wait(60)


def test_a_task_is_woken_from_another_thread() -> None:
    async def main() -> None:
        waiter = Waiter([A], asyncio.get_running_loop())
        threading.Thread(target=waiter.wake).start()
        await asyncio.wait_for(waiter.wait_async(60), 60)
        assert waiter.woken

    asyncio.run(main())


def test_a_wait_ends_by_itself() -> None:
    Waiter([A], None).wait(0.001)
    asyncio.run(_short())


async def _short() -> None:
    await Waiter([A], asyncio.get_running_loop()).wait_async(0.001)


def test_waking_a_task_of_a_closed_loop_is_harmless() -> None:
    loop = asyncio.new_event_loop()
    waiter = Waiter([A], loop)
    loop.close()
    waiter.wake()
