"""Tasks on every engine: published, carried out by a worker, and their results waited for."""

import asyncio
import logging
import threading
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import msgspec
import pytest

import tampu
from tampu.broker import access
from tampu.maintenance.tasks import Sweeper
from tampu.testing import Rehearsal
from tampu.worker.logs.formats import Json, Plain
from tests.conformance.harness import until
from tests.worker.crew import PATIENCE


class Receipt(msgspec.Struct):
    to: str
    cost: float


def test_sync_and_async_tasks_run_and_their_results_are_typed(app: tampu.App) -> None:
    @app.task(queue="emails")
    async def send(to: str, *, cost: float = 1.5) -> Receipt:
        await asyncio.sleep(0)
        return Receipt(to, cost)

    @app.task(queue="sums")
    def add(a: int, b: int) -> int:
        return a + b

    with tampu.working(app):
        first, second = send.publish("ada"), add.publish(2, b=3)
        assert first.result(60) == Receipt("ada", 1.5)
        assert second.result(60) == 5
        assert first.id == first.message.id


def test_result_is_waited_for_from_an_event_loop(app: tampu.App) -> None:
    @app.task
    def add(a: int, b: int) -> int:
        return a + b

    async def main() -> list[int]:
        published = await asyncio.gather(*(add.publish_async(n, n) for n in range(5)))
        return await asyncio.gather(*(one.result_async(30) for one in published))

    with tampu.working(app):
        assert asyncio.run(main()) == [0, 2, 4, 6, 8]


def test_result_that_takes_too_long_is_a_timeout(app: tampu.App) -> None:
    @app.task
    def never() -> None: ...

    with pytest.raises(TimeoutError, match="ready"):
        never.publish().result(0.01)


def test_many_are_published_in_one_commit_and_all_run(app: tampu.App) -> None:
    @app.task
    async def double(n: int) -> int:
        return 2 * n

    published = app.publish_many([double.message(n) for n in range(300)])
    with tampu.working(app):
        assert [one.result(60) for one in published] == [2 * n for n in range(300)]
    assert app.store.stats("default").done == 300


def test_calls_with_and_without_options_are_published_together(app: tampu.App) -> None:
    @app.task
    async def double(n: int) -> int:
        return 2 * n

    published = app.publish_many([double.message(1), double.options(priority=3).message(2), double.message(3)])
    assert [(one.message.type, one.message.priority) for one in published] == [("double", p) for p in (0, 3, 0)]
    with tampu.working(app):
        assert [one.result(60) for one in published] == [2, 4, 6]


def test_each_task_has_a_limit_of_its_own_where_the_queue_says_so(app: tampu.App) -> None:
    app.store.queues.put("default", group_by="type", group_concurrency=2)
    running, most, lock = Counter[str](), Counter[str](), threading.Lock()

    async def work() -> None:
        name = tampu.current().task.name
        with lock:
            running[name] += 1
            most[name] = max(most[name], running[name])
        await asyncio.sleep(0.01)
        with lock:
            running[name] -= 1

    tasks = [app.task(name=name)(work) for name in ("a", "b")]
    with tampu.working(app), tampu.working(app):
        app.publish_many([task.message() for task in tasks for _ in range(10)])
        until(lambda: app.store.stats("default").done == 20, 60)
    assert set(most) == {"a", "b"}
    assert max(most.values()) <= 2


def test_options_of_a_publish_are_fields_of_its_message(app: tampu.App) -> None:
    @app.task(max_attempts=7)
    def work(n: int) -> None: ...

    made = work.options(delay=60, priority=9, key="one", queue="other").publish(1).message
    assert (made.queue, made.state, made.priority, made.key, made.type) == ("other", "delayed", 9, "one", "work")
    assert made.max_attempts == 7
    assert work.options(max_attempts=2).publish(1).message.max_attempts == 2
    with pytest.raises(tampu.InvalidConfig, match="unknown option: color"):
        work.options(color="red")  # type: ignore[call-arg]  # on purpose


def test_calling_a_task_calls_the_function(memory: tampu.App) -> None:
    @memory.task
    def add(a: int, b: int) -> int:
        """Adds."""
        return a + b

    @memory.task
    async def more(a: int) -> int:
        return a + 1

    assert (add(1, 2), add.__doc__, asyncio.run(more(1))) == (3, "Adds.", 2)


def test_two_tasks_of_one_name_are_refused(memory: tampu.App) -> None:
    @memory.task
    def work() -> None: ...

    with pytest.raises(tampu.InvalidConfig, match="a task named work already exists"):
        memory.task(name="work")(lambda: None)


# -- how an attempt ends


def _run(app: tampu.App, task: Any, *args: Any, state: str) -> tampu.Message:
    """Publish one and wait until its message is in the state."""
    published = task.publish(*args)
    with tampu.working(app):
        until(lambda: app.store.get(published.id).state == state, 60)
    return app.store.get(published.id)


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_error_is_a_failed_attempt_with_its_traceback(app: tampu.App, kind: str) -> None:
    def fails() -> None:
        raise ValueError("not today")

    async def fails_async() -> None:
        raise ValueError("not today")

    task: Any = app.task(name="fails", max_attempts=1)(fails if kind == "sync" else fails_async)
    found = _run(app, task, state="dead")
    assert found.reason == "retries_exhausted"
    assert found.last_error == "ValueError: not today"
    assert "raise ValueError" in (found.failures[0].traceback or "")
    with pytest.raises(tampu.TaskFailed, match=r"dead .*not today"):
        tampu.Published(task, found).result(0)


def test_failed_task_is_tried_again_by_its_own_backoff(app: tampu.App) -> None:
    seen: list[int] = []

    @app.task(backoff=tampu.fixed(0.01))
    def flaky() -> int:
        seen.append(tampu.current().attempt)
        if len(seen) < 3:
            raise OSError("again")
        return len(seen)

    with tampu.working(app):
        assert flaky.publish().result(60) == 3
    assert seen == [1, 2, 3]


@pytest.mark.parametrize("most", [2, 4])
def test_task_brings_its_own_policy_to_messages_that_others_published(app: tampu.App, most: int) -> None:
    app.store.queues.put("default", max_attempts=3, backoff=3600)
    seen: list[int] = []

    @app.task(max_attempts=most, backoff=tampu.fixed(0.01))
    def flaky() -> None:
        seen.append(tampu.current().attempt)
        raise OSError("again")

    foreign = app.store.publish("default", {}, type="flaky")
    with tampu.working(app):
        found = app.store.result(foreign.id, wait=60)
    assert (found.state, found.reason, found.attempts, found.max_attempts) == ("dead", "retries_exhausted", most, most)
    assert seen == list(range(1, most + 1))


def test_publisher_that_sets_max_attempts_has_the_last_word(app: tampu.App) -> None:
    seen: list[int] = []

    @app.task(max_attempts=3, backoff=tampu.fixed(0.01))
    def flaky() -> None:
        seen.append(tampu.current().attempt)
        raise OSError("again")

    foreign = app.store.publish("default", {}, type="flaky", max_attempts=2)
    with tampu.working(app):
        assert app.store.result(foreign.id, wait=60).attempts == 2
        own = flaky.options(max_attempts=1).publish()
        assert app.store.result(own.id, wait=60).attempts == 1
    assert seen == [1, 2, 1]


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_task_is_not_called_more_often_than_it_says_though_leases_ran_out(app: tampu.App, kind: str) -> None:
    seen: list[int] = []

    def work() -> None:
        seen.append(tampu.current().attempt)

    async def work_async() -> None:
        work()

    app.task(name="work", max_attempts=1)(work if kind == "sync" else work_async)
    foreign = app.store.publish("default", {}, type="work")
    # A worker that dies: nobody settles the only attempt that the task allows, and the queue allows more.
    (lost,) = app.store.claim("default", lease=0.05)
    with tampu.working(app):
        found = app.store.result(foreign.id, wait=60)
    assert (found.state, found.reason) == ("dead", "retries_exhausted")
    assert "all 1 attempts of" in (found.last_error or "")
    assert (lost.attempt, seen) == (1, [])


def test_arguments_that_json_would_change_arrive_unchanged(app: tampu.App) -> None:
    seen: list[Any] = []

    @app.task
    def work(data: Any, exact: Decimal) -> None:
        seen.append((data, exact))

    at = datetime(2026, 3, 1, 12, tzinfo=UTC)
    for data in ({"b": b"abc"}, {1: 2}, [at]):
        work.publish(data, Decimal("1.50"))
    app.store.publish("default", {"data": {"b": b"abc", 1: at}, "exact": "1.50"}, type="work")
    with tampu.working(app):
        until(lambda: len(seen) == 4, 60)
    assert sorted(seen, key=repr) == sorted(
        [(data, Decimal("1.50")) for data in ({"b": b"abc"}, {1: 2}, [at], {"b": b"abc", 1: at})], key=repr
    )


def test_result_that_would_arrive_as_another_value_is_dead_unless_the_annotation_reads_it(app: tampu.App) -> None:
    @app.task
    def typed() -> Decimal:
        return Decimal("1.50")

    @app.task
    async def untyped() -> Any:
        return {"price": Decimal("1.50")}

    with tampu.working(app):
        assert typed.publish().result(60) == Decimal("1.50")
        found = app.store.result(untyped.publish().id, wait=60)
    assert (found.state, found.reason) == ("dead", "result_invalid")
    assert "$['price'] is a Decimal" in (found.last_error or "")


def test_retry_counts_and_waits_as_it_says(app: tampu.App) -> None:
    @app.task
    async def later() -> None:
        raise tampu.Retry("the other side sleeps", after=3600)

    found = _run(app, later, state="delayed")
    assert (found.attempts, found.last_error) == (1, "the other side sleeps")
    assert found.run_at is not None
    assert (found.run_at - found.created_at).total_seconds() >= 3600


def test_snooze_does_not_count(app: tampu.App) -> None:
    @app.task(max_attempts=1)
    def later() -> None:
        raise tampu.Snooze(3600)

    found = _run(app, later, state="delayed")
    assert (found.attempts, found.last_error) == (0, None)
    assert found.run_at is not None
    assert (found.run_at - found.created_at).total_seconds() >= 3600


def test_a_review_keeps_the_checkpoint_and_the_decision_comes_with_the_next_delivery(app: tampu.App) -> None:
    @app.task(max_attempts=1)
    def pay(amount: int) -> list[Any]:
        work = tampu.current()
        if work.message.review is None:
            work.checkpoint.set("half")
            raise tampu.Review({"options": ["approve"]} if amount else "no-such-pattern", "a large amount")
        assert work.message.review.decision is not None
        return [work.message.review.decision.by, work.checkpoint.get(), work.attempt]

    with tampu.working(app):
        paid, bad = pay.publish(500), pay.publish(0)
        until(app.store.reviews.list)
        (asked,) = app.store.reviews.list()
        assert (asked.id, asked.reason) == (paid.id, "a large amount")
        app.store.reviews.decide(paid.id, "approve", by="ada")
        assert paid.result(PATIENCE) == ["ada", "half", 1]
        until(lambda: app.store.get(bad.id).state == "dead")
    assert "no pattern no-such-pattern" in (app.store.get(bad.id).last_error or "")


@pytest.mark.parametrize("error", [tampu.Reject("no_such_user"), tampu.Reject("no_such_user", error="user 7")])
def test_reject_is_dead_at_once_for_its_reason(app: tampu.App, error: tampu.Reject) -> None:
    @app.task
    def bad() -> None:
        raise error

    found = _run(app, bad, state="dead")
    assert (found.reason, found.attempts) == ("no_such_user", 1)
    assert found.last_error == (error.error or "no_such_user")


def test_payload_that_does_not_fit_is_dead_with_the_reason(app: tampu.App) -> None:
    @app.task
    async def work(n: int) -> None: ...

    published = app.store.publish("default", {"n": "x"}, type="work")
    with tampu.working(app):
        found = app.store.result(published.id, wait=60)
    assert (found.state, found.reason) == ("dead", "decode_failed")
    assert "Expected `int`, got `str` - at `$.n`" in (found.last_error or "")


def test_result_that_cannot_be_kept_is_dead_and_its_neighbours_are_not(app: tampu.App) -> None:
    @app.task(queue="big")
    async def odd(n: int) -> Any:
        return object() if n == 1 else b"x" * 300_000 if n == 2 else n

    published = app.publish_many([odd.message(n) for n in range(5)])
    with tampu.working(app):
        ended = [app.store.result(one.id, wait=60) for one in published]
    assert [(m.state, m.reason) for m in ended] == [
        ("done", None), ("dead", "result_invalid"), ("dead", "result_invalid"), ("done", None), ("done", None),
    ]  # fmt: skip
    assert [ended[n].result for n in (0, 3, 4)] == [0, 3, 4]


def test_unknown_task_is_tried_again_later_so_that_a_newer_worker_can_have_it(app: tampu.App) -> None:
    app.task(name="known")(lambda: None)
    published = app.store.publish("default", {}, type="unheard.of")
    with tampu.working(app):
        until(lambda: app.store.get(published.id).state == "delayed", 60)
    found = app.store.get(published.id)
    assert found.last_error == "this worker has no task named unheard.of"
    assert found.run_at is not None
    assert 25 < (found.run_at - found.created_at).total_seconds() < 600


def test_unknown_task_can_be_dead_at_once(app: tampu.App) -> None:
    published = app.store.publish("default", {}, type="unheard.of")
    with tampu.working(app, unknown="reject"):
        assert app.store.result(published.id, wait=60).reason == "unknown_task"


@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize("error", [SystemExit(3), asyncio.CancelledError()])
def test_task_that_wants_to_end_the_program_only_fails(memory: tampu.App, kind: str, error: BaseException) -> None:
    def leave() -> None:
        raise error

    async def leave_async() -> None:
        raise error

    task: Any = memory.task(name="leave", max_attempts=1)(leave if kind == "sync" else leave_async)
    other = memory.task(name="other")(lambda: 5)
    with tampu.working(memory):
        with pytest.raises(tampu.TaskFailed, match=type(error).__name__):
            task.publish().result(60)
        assert other.publish().result(60) == 5


def test_notes_that_a_crash_left_behind_are_removed_by_the_next_worker(app: tampu.App) -> None:
    if not hasattr(access.core(app.store), "coalescer"):
        return  # behind a server, a worker beside the store does it
    done, before_fork = app.store.publish_many("other", [1, 2])
    store = app.store
    for lease in store.claim("other", limit=2):
        access.run(store, access.verbs(store).write_note(lease.id, lease.receipt, {"cursor": 1}, 60))
        if lease.id == done.id:
            store.ack(lease)
    with tampu.working(app):
        until(lambda: access.run(store, access.verbs(store).read_note(done.id)) is None)
    assert access.run(store, access.verbs(store).read_note(before_fork.id)) == {"cursor": 1}


# -- what runs now


def test_current_tells_what_runs_and_is_of_one_message_only(app: tampu.App) -> None:
    @app.task
    async def who() -> list[Any]:
        before = tampu.current().id
        await asyncio.sleep(0.01)
        return [before, tampu.current().id, tampu.current().attempt, tampu.current().task.name]

    published = app.publish_many([who.message() for _ in range(10)])
    with tampu.working(app):
        for one in published:
            assert one.result(60) == [one.id, one.id, 1, "who"]
    with pytest.raises(tampu.InvalidState, match="no task is running"):
        tampu.current()


def test_checkpoint_is_kept_across_attempts_and_gone_at_the_end(app: tampu.App) -> None:
    seen: list[int] = []

    @app.task(backoff=[0])
    def copy(rows: int) -> int:
        at = tampu.current().checkpoint.get(0)
        seen.append(at)
        for row in range(at, rows):
            if row == 3 and len(seen) == 1:
                raise OSError("the power is gone")
            tampu.current().checkpoint.set(row + 1)
        return rows

    with tampu.working(app):
        published = copy.publish(6)
        assert published.result(60) == 6
        until(lambda: access.run(app.store, access.verbs(app.store).read_note(published.id)) is None)
    assert seen == [0, 3]


def test_log_lines_carry_the_message_and_their_own_fields(memory: tampu.App, caplog: pytest.LogCaptureFixture) -> None:
    @memory.task
    def copy() -> None:
        tampu.current().log.info("copied %d", 7, row=7)

    with caplog.at_level(logging.INFO, "tampu.task"), tampu.working(memory):
        published = copy.publish()
        published.result(60)
    (line,) = (record for record in caplog.records if record.name == "tampu.task")
    assert f"copied 7  task=copy  message_id={published.id}  attempt=1  row=7" in Plain().format(line)
    found = msgspec.json.decode(Json().format(line))
    assert {name: found[name] for name in ("event", "level", "task", "message_id", "attempt", "row")} == {
        "event": "copied 7", "level": "info", "task": "copy", "message_id": published.id, "attempt": 1, "row": 7,
    }  # fmt: skip


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_task_knows_what_time_is_left(memory: tampu.App, kind: str) -> None:
    def work() -> list[float | None]:
        return [tampu.current().seconds_left]

    async def work_async() -> list[float | None]:
        before = tampu.current().seconds_left
        await asyncio.sleep(0.01)
        return [before, tampu.current().seconds_left]

    task: Any = memory.task(name="work", timeout=50)(work if kind == "sync" else work_async)
    with tampu.working(memory):
        assert all(left is not None and 0 < left <= 50 for left in task.publish().result(60))


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_lease_that_a_task_extends_lasts_so_much_longer(memory: tampu.App, kind: str) -> None:
    def pause() -> None:
        stage.clock.advance(3000)
        Sweeper(access.core(stage.store)).sweep()

    def work() -> None:
        tampu.current().extend(3600)
        pause()

    async def work_async() -> None:
        await tampu.current().extend_async(3600)
        pause()

    task: Any = memory.task(name="work")(work if kind == "sync" else work_async)
    with Rehearsal(memory) as stage:
        task.publish()
        assert [(ran.attempt, ran.state) for ran in stage.drain()] == [(1, "done")]


def test_extending_a_lease_that_is_lost_is_reported_to_the_task(memory: tampu.App) -> None:
    seen: list[str] = []

    @memory.task
    def work() -> None:
        memory.store.nack(tampu.current().lease, delay=3600)  # as if it had run out
        try:
            tampu.current().extend(60)
        except tampu.LeaseLost as error:
            seen.append(error.code)

    with tampu.working(memory):
        work.publish()
        until(lambda: seen, 60)
    assert seen == ["lease_lost"]


def test_progress_can_be_seen_while_the_task_runs(app: tampu.App) -> None:
    go = threading.Event()

    @app.task
    def slow() -> None:
        tampu.current().progress(0.25, "a quarter")
        go.wait(60)

    with tampu.working(app):
        published = slow.publish()
        try:
            until(lambda: published.progress() == (0.25, "a quarter"), 60)
        finally:
            go.set()
        published.result(60)


def test_cancelled_task_is_informed_and_ends_as_cancelled(app: tampu.App) -> None:
    started, seen = threading.Event(), list[bool]()

    @app.task
    async def wait() -> None:
        started.set()
        seen.append(tampu.current().cancelled)
        try:
            await asyncio.sleep(3600)
        finally:
            seen.append(tampu.current().cancelled)

    with tampu.working(app, lease=6):
        published = wait.publish()
        assert started.wait(60)
        app.store.cancel(published.id)
        with pytest.raises(tampu.TaskFailed, match="cancelled"):
            published.result(60)
    assert seen == [False, True]


def test_cancelled_function_in_a_thread_is_interrupted(app: tampu.App) -> None:
    started = threading.Event()

    @app.task
    def wait() -> None:
        started.set()
        while True:
            threading.Event().wait(0.01)

    with tampu.working(app, lease=6):
        published = wait.publish()
        assert started.wait(60)
        app.store.cancel(published.id)
        with pytest.raises(tampu.TaskFailed, match="cancelled"):
            published.result(60)


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_task_that_takes_longer_than_its_timeout_fails(app: tampu.App, kind: str) -> None:
    def wait() -> None:
        while True:
            threading.Event().wait(0.01)

    async def wait_async() -> None:
        await asyncio.sleep(3600)

    task: Any = app.task(name="wait", timeout=0.05, max_attempts=1)(wait if kind == "sync" else wait_async)
    found = _run(app, task, state="dead")
    assert found.last_error == "TimedOut: wait ran for longer than 0.05 s"


def test_long_task_with_a_short_lease_runs_once(memory: tampu.App, monkeypatch: pytest.MonkeyPatch) -> None:
    extend, extended, runs, go = access.verbs(memory.store).extend_many, list[int](), list[int](), threading.Event()

    def count(items: Sequence[Any]) -> Any:
        extended.append(1)
        return extend(items)

    monkeypatch.setattr(access.verbs(memory.store), "extend_many", count)

    @memory.task
    def long() -> int:
        runs.append(1)
        assert go.wait(PATIENCE)
        return len(runs)

    with tampu.working(memory, lease=6):
        published = long.publish()
        until(lambda: len(extended) == 5, PATIENCE)  # three times in a lease, so that is longer than one
        go.set()
        assert published.result(PATIENCE) == 1
    assert runs == [1]
