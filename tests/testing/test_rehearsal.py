"""`tampu.testing`: apps on a store in memory, run by hand, with failures on demand."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

import tampu
from tampu.testing import FakeClock, Rehearsal

app = tampu.App("postgresql://nobody@nowhere.invalid/none")  # never opened: the tests rehearse


@app.task(queue="emails", max_attempts=3, timeout=30, backoff=tampu.fixed(10, jitter="none"))
async def send(to: str, *, subject: str = "hi") -> str:
    return f"{subject}, {to}"


@app.task
def welcome(name: str) -> None:
    send.publish(f"{name}@example.org", subject="welcome")


@app.task
def forever() -> None:
    forever.publish()


@pytest.fixture
def stage() -> Iterator[Rehearsal]:
    with Rehearsal(app) as rehearsal:
        yield rehearsal


def test_drain_runs_what_is_ready_and_what_that_publishes(stage: Rehearsal) -> None:
    published = welcome.publish("ada")
    ran = stage.drain()
    assert [(r.task, r.state, r.result) for r in ran] == [
        ("welcome", "done", None),
        ("send", "done", "welcome, ada@example.org"),
    ]
    assert published.id == ran[0].id
    assert stage.drain() == []


def test_drain_of_some_queues_leaves_the_others(stage: Rehearsal) -> None:
    welcome.publish("ada")
    send.publish("grace@example.org")
    assert [r.task for r in stage.drain("emails")] == ["send"]
    assert [r.task for r in stage.drain()] == ["welcome", "send"]


def test_delays_wait_for_the_clock(stage: Rehearsal) -> None:
    send.options(delay=60).publish("ada@example.org")
    assert stage.drain() == []
    stage.advance(timedelta(minutes=1))
    assert [r.result for r in stage.drain()] == ["hi, ada@example.org"]


def test_assert_published_finds_by_task_arguments_and_options(stage: Rehearsal) -> None:
    send.options(priority=9).publish("ada@example.org", subject="x")
    send.publish("grace@example.org")
    assert len(stage.assert_published(send)) == 2
    (found,) = stage.assert_published(send, "ada@example.org", subject="x")
    assert found.priority == 9
    stage.assert_published(send, to="grace@example.org", subject="hi")
    stage.assert_published(send.options(priority=9))
    stage.assert_published("send", queue="emails", priority=9)
    stage.assert_not_published(welcome)
    stage.assert_not_published(send.options(queue="elsewhere"))
    stage.drain()
    assert len(stage.assert_published(send)) == 2  # also when it is done


def test_what_was_not_published_fails_and_tells_what_was(stage: Rehearsal) -> None:
    send.publish("ada@example.org")
    with pytest.raises(AssertionError, match=r"send\('grace@example.org'\) was not published.*ada@example.org"):
        stage.assert_published(send, "grace@example.org")
    with pytest.raises(AssertionError, match="send was published 1 times"):
        stage.assert_not_published(send)


def test_a_task_fails_on_demand_and_is_tried_again(stage: Rehearsal) -> None:
    stage.fail(send, ConnectionError("no route"), times=2)
    message = send.publish("ada@example.org")
    (first,) = stage.drain()
    assert (first.state, str(first.error)) == ("delayed", "no route")
    stage.advance(10)
    stage.drain()
    stage.advance(10)
    (last,) = stage.drain()
    assert (last.attempt, last.state, last.error) == (3, "done", None)
    assert [f.error for f in stage.store.get(message.id).failures] == ["ConnectionError: no route"] * 2


def test_errors_can_be_raised_in_the_test(stage: Rehearsal) -> None:
    stage.fail(send, ConnectionError("no route"))
    send.publish("ada@example.org")
    with pytest.raises(ConnectionError, match="no route"):
        stage.drain(raise_errors=True)


def test_a_message_that_fails_without_an_error_of_its_task_is_reported_too() -> None:
    own = tampu.App("memory://")

    @own.task
    def work(n: int) -> Any:
        return object() if n == 1 else b"x" * 300_000

    for payload, reason in (({"n": "x"}, "decode_failed"), ({"n": 1}, "result_invalid"), ({"n": 2}, "result_invalid")):
        with Rehearsal(own) as stage:
            own.store.publish("default", payload, type="work")
            with pytest.raises(tampu.TaskFailed, match=reason):
                stage.drain(raise_errors=True)


def test_errors_of_a_middleware_are_raised_in_the_test() -> None:
    class Strict(tampu.Middleware):
        @contextlib.contextmanager
        def run(self, current: tampu.Current) -> Iterator[None]:
            raise RuntimeError("not allowed")
            yield

    own = tampu.App("memory://", middleware=[Strict()])
    task = own.task(name="work")(lambda: None)
    with Rehearsal(own) as stage:
        task.publish()
        with pytest.raises(RuntimeError, match="not allowed"):
            stage.drain(raise_errors=True)
    assert len(own.running) == 1


def test_an_async_task_is_not_drained_inside_a_loop_but_the_error_says_how(stage: Rehearsal) -> None:
    async def story() -> None:
        send.publish("ada@example.org")
        with pytest.raises(tampu.InvalidState, match=r"await drain_async\(\)"):
            stage.drain()
        assert [r.attempt for r in await stage.drain_async()] == [1]

    asyncio.run(story())


def test_a_slow_task_keeps_its_lease_and_ends_at_its_timeout(stage: Rehearsal) -> None:
    stage.slow(welcome, timedelta(hours=1))
    welcome.publish("ada")
    began = stage.clock.time
    assert stage.drain("default")[0].state == "done"
    assert stage.clock.time - began == timedelta(hours=1)
    stage.drain()
    stage.slow(send, 31)
    send.publish("ada@example.org")
    (ran,) = stage.drain()
    assert (ran.state, type(ran.error).__name__) == ("delayed", "TimedOut")


def test_a_stalled_worker_is_refused_and_the_message_runs_again(stage: Rehearsal) -> None:
    stage.stall(send, 3600)
    send.publish("ada@example.org")
    refused, again = stage.drain()
    assert (refused.attempt, refused.state) == (1, None)
    assert (again.attempt, again.state) == (2, "done")


def test_a_message_nobody_handles_is_reported(stage: Rehearsal) -> None:
    app.store.publish("default", 1, type="unheard.of")
    with pytest.raises(tampu.NotFound, match=r"unheard\.of"):
        stage.drain()


def test_a_task_that_publishes_itself_for_ever_is_reported(stage: Rehearsal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tampu.testing.rehearsal._ENDLESS", 50)
    forever.publish()
    with pytest.raises(AssertionError, match="does a task publish itself"):
        stage.drain()


def test_schedules_fire_by_the_clock_of_the_rehearsal(stage: Rehearsal) -> None:
    app.schedule("daily", send.message("ada@example.org"), cron="0 9 * * *", tz="Europe/Rome")
    assert stage.drain() == []
    stage.advance(timedelta(days=1))
    assert [r.result for r in stage.drain()] == ["hi, ada@example.org"]


def test_in_an_event_loop(stage: Rehearsal) -> None:
    async def story() -> None:
        await send.publish_async("ada@example.org")
        assert [r.result for r in await stage.drain_async()] == ["hi, ada@example.org"]

    asyncio.run(story())


def test_the_app_is_as_before_afterwards() -> None:
    with tampu.open("memory://") as store:
        own = tampu.App(store)
        with Rehearsal(own) as stage:
            assert own.store is stage.store
        assert own.store is store
        assert own.running == []


def test_a_real_worker_may_run_a_rehearsal(stage: Rehearsal) -> None:
    stage.fail(send, tampu.Reject("on_demand"))
    published = send.publish("ada@example.org")
    with tampu.working(app), pytest.raises(tampu.TaskFailed, match="on_demand"):
        published.result(60)


def test_the_clock_moves_only_by_hand() -> None:
    clock = FakeClock()
    before = clock.time
    clock.advance(timedelta(days=1))
    clock.advance(0.5)
    assert clock.time - before == timedelta(days=1, seconds=0.5)
    clock.move_to(before)
    assert clock.time == before
