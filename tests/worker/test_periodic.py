"""Tasks by the clock: declared with @app.cron and @app.every, put when a worker starts."""

from __future__ import annotations

import logging
from datetime import timedelta

import pytest

import tampu
from tampu.testing import Rehearsal
from tests.conformance.harness import until


def test_declared_schedules_are_put_when_a_worker_starts(app: tampu.App) -> None:
    @app.cron("30 3 * * *", tz="Europe/Rome", args=("sales",), missed="all(3)")
    @app.task(queue="reports", max_attempts=2)
    def report(kind: str) -> str:
        return kind

    @app.every(timedelta(hours=1), name="hourly", kwargs={"deep": True}, jitter=60)
    @app.task
    def clean(deep: bool = False) -> None: ...

    assert app.store.schedules.list() == []
    with tampu.working(app):
        hourly, nightly = app.store.schedules.list()
    assert (nightly.name, nightly.queue, nightly.cron, nightly.tz) == ("report", "reports", "30 3 * * *", "Europe/Rome")
    assert (nightly.payload, nightly.message.type, nightly.missed) == ({"kind": "sales"}, "report", "all(3)")
    assert nightly.message.max_attempts == 2
    assert (hourly.name, hourly.payload, hourly.every) == ("hourly", {"deep": True}, timedelta(hours=1))
    assert hourly.jitter == timedelta(minutes=1)


def test_a_second_worker_changes_nothing_and_what_is_paused_stays_so(app: tampu.App) -> None:
    @app.every(3600)
    @app.task
    def tick() -> None: ...

    (made,) = app.put_schedules()
    assert app.put_schedules() == [made]
    app.store.schedules.pause("tick")
    assert app.put_schedules()[0].status == "paused"


def test_a_worker_runs_what_is_scheduled(app: tampu.App) -> None:
    @app.every(1, limit=1)
    @app.task
    def tick() -> str:
        tampu.current().log.info("tick")
        return str(tampu.current().message.headers["tampu-schedule"])

    with tampu.working(app):
        until(lambda: app.store.schedules.get("tick").last_id)
        found = app.store.result(app.store.schedules.get("tick").last_id or "", wait=30)
    assert found.result == "tick"


def test_a_rehearsal_puts_and_fires_what_is_declared(memory: tampu.App) -> None:
    seen: list[str] = []

    @memory.cron("0 * * * *")
    @memory.task
    def tick() -> None:
        seen.append(tampu.current().message.headers["tampu-tick"])

    with Rehearsal(memory) as stage:
        memory.put_schedules()
        for _ in range(3):
            stage.advance(timedelta(hours=1))
            stage.drain()
    assert [text[11:16] for text in seen] == ["01:00", "02:00", "03:00"]


def test_schedules_of_tasks_that_are_gone_are_reported_and_left(
    memory: tampu.App, caplog: pytest.LogCaptureFixture
) -> None:
    @memory.every(60)
    @memory.task
    def stays() -> None: ...

    memory.store.schedules.put("gone", queue="default", type="was.removed", every=60)
    memory.store.schedules.put("foreign", queue="elsewhere", type="not.ours", every=60)
    with caplog.at_level(logging.WARNING, "tampu.worker"):
        memory.put_schedules()
    assert "tampu schedule remove gone" in caplog.text
    assert "foreign" not in caplog.text
    assert len(memory.store.schedules.list()) == 3


def test_wrong_declarations_are_refused(memory: tampu.App) -> None:
    with pytest.raises(tampu.InvalidConfig, match=r"above @app\.task"):

        @memory.cron("* * * * *")  # type: ignore[type-var]  # on purpose
        def plain() -> None: ...

    @memory.task
    def tick() -> None: ...

    memory.every(60)(tick)
    with pytest.raises(tampu.InvalidConfig, match="name="):
        memory.every(90)(tick)
    memory.every(90, name="other")(tick)


def test_times_that_make_no_sense_are_refused_where_they_are_declared(memory: tampu.App) -> None:
    for declare, field in (
        (lambda: memory.cron("not cron"), "cron"),
        (lambda: memory.cron("61 * * * *"), "cron"),
        (lambda: memory.cron("0 0 30 2 *"), "cron"),
        (lambda: memory.cron("* * * * *", tz="Europe/Roma"), "tz"),
        (lambda: memory.every(0.1), "every"),
        (lambda: memory.every("soon"), "every"),
        (lambda: memory.every(60, limit=0), "limit"),
        (lambda: memory.every(60, missed="twice"), "missed"),
    ):
        with pytest.raises(tampu.InvalidMessage) as refused:
            declare()
        assert refused.value.field == field
    with pytest.raises(tampu.InvalidConfig, match="no option jiter; did you mean jitter") as unknown:
        memory.every(60, jiter=5)  # type: ignore[call-arg]  # on purpose
    assert "task.options" in str(unknown.value.hint)
    assert memory.declared == {}


def test_a_call_is_scheduled_at_run_time(memory: tampu.App) -> None:
    @memory.task(queue="emails")
    def send(to: str) -> None: ...

    made = memory.schedule("remind", send.options(priority=3).message("ada"), every=60, limit=1)
    assert (made.queue, made.payload, made.message.priority, made.limit) == ("emails", {"to": "ada"}, 3, 1)
