"""The scheduler: when it looks, what it asks of the store, and that one bad schedule does not stop the others."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import Any

import pytest

import tampu
from tampu.broker import access
from tampu.broker.schedules import fire
from tampu.broker.schedules import stored as schedules_stored
from tampu.engines.port import Publish, PutDocument, Together
from tampu.maintenance import scheduler as scheduler_module
from tampu.maintenance.scheduler import Scheduler
from tampu.model.times import SECOND
from tests.conformance.harness import FakeClock


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def store(clock: FakeClock) -> Iterator[tampu.Store]:
    with tampu.open("memory://", maintenance=False, clock=clock) as opened:
        yield opened


@pytest.fixture
def commits(store: tampu.Store, monkeypatch: pytest.MonkeyPatch) -> list[list[Any]]:
    """The calls of each commit."""
    seen: list[list[Any]] = []
    run = access.engine(store).run

    def noting(calls: Any) -> Any:
        seen.append(list(calls))
        return run(calls)

    monkeypatch.setattr(access.core(store).coalescer._engine, "run", noting)
    return seen


def test_an_idle_scheduler_reads_no_document_and_writes_nothing(
    store: tampu.Store, monkeypatch: pytest.MonkeyPatch, commits: list[list[Any]]
) -> None:
    store.schedules.put("s", queue="jobs", every=60)
    scheduler = Scheduler(access.core(store))
    due = scheduler.fire()
    commits.clear()
    monkeypatch.setattr(access.engine(store), "documents", None)
    monkeypatch.setattr(access.engine(store), "document", None)
    assert scheduler.fire() == due == access.engine(store).now() + 60 * SECOND
    assert commits == []


def test_schedules_that_are_due_together_share_their_commits(
    store: tampu.Store, clock: FakeClock, commits: list[list[Any]]
) -> None:
    for n in range(50):
        store.schedules.put(f"s{n}", queue=f"q{n}", every=60)
    scheduler = Scheduler(access.core(store))
    scheduler.fire()
    clock.advance(60)
    commits.clear()
    scheduler.fire()
    assert [type(call) for calls in commits for call in calls] == [Together] * 50
    assert len(commits) < 50


def test_a_schedule_that_cannot_be_read_does_not_stop_the_others(
    store: tampu.Store, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    store.schedules.put("bad", queue="jobs", cron="0 0 * * *", tz="Europe/Rome")
    store.schedules.put("good", queue="jobs", payload="tick", every=60)
    document = access.engine(store).document(schedules_stored.KIND, "default", "bad")
    assert document is not None
    unknown = document.value.replace(b"Europe/Rome", b"Mars/Base")
    for value in (b"not json", unknown):
        access.core(store).coalescer.submit(PutDocument(schedules_stored.KIND, "default", "bad", value))
        clock.advance(60)
        with caplog.at_level(logging.ERROR, "tampu.maintenance"):
            Scheduler(access.core(store)).fire()
        assert "bad" in caplog.text
    assert [lease.payload for lease in store.claim("jobs", limit=5)] == ["tick", "tick"]


def test_a_change_is_looked_at_soon_and_not_all_the_time(
    store: tampu.Store, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler = Scheduler(access.core(store))
    assert scheduler.fire() is None
    store.schedules.put("s", queue="jobs", every=3600)
    soon = scheduler.fire()
    assert soon is not None
    assert 0 < soon - clock.now() <= SECOND / 2
    monkeypatch.setattr(scheduler_module, "_READ_SECONDS", 0.0)
    assert scheduler.fire() == clock.now() + 3600 * SECOND


def test_a_refused_tick_is_tried_again_after_longer_and_longer_waits(store: tampu.Store, clock: FakeClock) -> None:
    store.schedules.put("s", queue="jobs", every=3600)
    store.publish("jobs", 1)
    store.close_queue("jobs")
    scheduler = Scheduler(access.core(store))
    scheduler.fire()
    clock.advance(3600)
    waits = []
    for _ in range(10):
        scheduler._read_at = 0.0
        scheduler.fire()
        at = scheduler._next
        assert at is not None
        waits.append((at - clock.now()) / SECOND)
        clock.advance(waits[-1])
    assert waits[-3:] == [60, 60, 60]
    assert waits == sorted(waits)


@pytest.mark.parametrize("stored", [0, 1, 2, 3])
def test_many_large_ticks_are_stored_in_portions_and_each_once(
    store: tampu.Store, clock: FakeClock, commits: list[list[Any]], monkeypatch: pytest.MonkeyPatch, stored: int
) -> None:
    """Also when somebody died after some portions, and the schedule was changed before the next one goes on."""
    monkeypatch.setattr(fire, "_PORTION_BYTES", 1000)
    terms: dict[str, Any] = {"queue": "jobs", "every": 60, "missed": "all(9)"}
    store.schedules.put("s", payload="x" * 400, **terms)
    clock.advance(6 * 60)
    writes = 0

    class Died(BaseException):
        pass

    def do(step: Any) -> Any:
        nonlocal writes
        if isinstance(step, Together):
            writes += 1
            if writes == stored + 1:
                raise Died
        return access.core(store).do(step)

    with contextlib.suppress(Died):
        access.core(store).drive(fire.fire("default", "s"), do)
    published = [c for calls in commits for unit in calls if isinstance(unit, Together) for c in unit.calls]
    assert [len(c.items) for c in published if isinstance(c, Publish)] == [2] * stored
    store.schedules.put("s", payload="changed, and small", **terms)
    Scheduler(access.core(store)).fire()
    ticks = [m.headers[schedules_stored.TICK_HEADER][14:16] for m in store.messages("jobs")]
    assert ticks == ["01", "02", "03", "04", "05", "06"]
    assert [m.payload for m in store.messages("jobs")].count("changed, and small") == 6 - 2 * stored
    assert store.schedules.get("s").fired == 6


@pytest.mark.parametrize("limit", [2000, None])
@pytest.mark.parametrize("missed", ["once", "all(1000)"])
def test_a_schedule_that_had_ended_at_its_limit_fires_no_past_ticks_when_the_limit_is_raised(
    store: tampu.Store, clock: FakeClock, missed: str, limit: int | None
) -> None:
    store.schedules.put("s", queue="jobs", payload=1, every=60, limit=1, missed=missed)
    clock.advance(60)
    Scheduler(access.core(store)).fire()
    clock.advance(30 * 24 * 3600)
    store.schedules.put("s", queue="jobs", payload=1, every=60, limit=limit, missed=missed)
    Scheduler(access.core(store)).fire()
    assert store.stats("jobs").ready == 1
    clock.advance(60)
    Scheduler(access.core(store)).fire()
    assert store.stats("jobs").ready == 2
