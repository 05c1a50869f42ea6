"""Ticks of schedules: each fires exactly once, although processes die, restart, or the clock moves."""

from __future__ import annotations

import threading
from collections.abc import Generator
from datetime import datetime, timedelta
from typing import Any

import pytest

from tampu import QueueFull, TampuError
from tampu.broker.core import Core
from tampu.broker.schedules import fire
from tampu.broker.store import Store
from tampu.engines.port import PutDocument, Together
from tampu.maintenance.scheduler import Scheduler
from tests.conformance.harness import Harness
from tests.conformance.schedule_helpers import DAY, HOUR, MINUTE, fired, put


def test_five_schedulers_fire_each_tick_once(store: Store, harness: Harness) -> None:
    """Each has its own memory, as processes have; they race for every tick of three schedules."""
    for name in "abc":
        put(store, name, queue=f"q.{name}", every=MINUTE, missed="all(10)")
    maintenance = [Scheduler(harness.core()) for _ in range(5)]
    failed: list[BaseException] = []

    def work(scheduler: Scheduler, start: threading.Barrier) -> None:
        try:
            start.wait(60)
            scheduler.forget()
            scheduler.fire()
        except BaseException as error:  # reported below
            failed.append(error)

    for _ in range(6):
        harness.clock.advance(MINUTE)
        start = threading.Barrier(5)
        threads = [threading.Thread(target=work, args=(scheduler, start)) for scheduler in maintenance]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert failed == []
    for name in "abc":
        assert fired(store, f"q.{name}") == [f"01-01T00:0{minute}" for minute in range(1, 7)]
        assert store.schedules.get(name).fired == 6


def test_a_schedule_continues_after_a_restart(harness: Harness) -> None:
    store = harness.open()
    put(store, missed="all(5)")
    harness.clock.advance(MINUTE)
    harness.fire()
    store = harness.reopen()
    harness.fire()
    harness.clock.advance(MINUTE)
    harness.fire()
    assert fired(store) == ["01-01T00:01", "01-01T00:02"]


class Died(BaseException):
    """A process that ends here."""


def steps_of(core: Core, name: str = "s") -> Generator[None]:
    """Fire, giving way before and after each thing that is written."""
    work: Any = fire.fire("default", name)
    answer: Any = None
    try:
        step = next(work)
        while True:
            if isinstance(step, PutDocument | Together):
                yield
            try:
                answer = core.do(step)
            except TampuError as error:
                step = work.throw(error)
                continue
            if isinstance(step, PutDocument | Together):
                yield
            step = work.send(answer)
    except StopIteration:
        return


@pytest.mark.parametrize("steps", [1, 2])
@pytest.mark.parametrize("away", [0, 30, 7 * DAY])
def test_a_scheduler_that_dies_between_any_two_steps_leaves_a_tick_that_fires_once(
    store: Store, harness: Harness, steps: int, away: float
) -> None:
    """Also when nobody is there for longer than any key is remembered, and the message has been worked off."""
    store.queues.put("*", retention=0, idempotency_window=0)
    worked = {}
    for missed in ("skip", "once", "all(3)"):
        name = missed[:3]
        put(store, name, queue=name, every=30 * DAY, missed=missed, limit=2)
    harness.clock.advance(30 * DAY)
    for name in ("ski", "onc", "all"):
        dying = steps_of(harness.core(), name)
        for _ in range(steps):
            next(dying)
        dying.close()
        leases = store.claim(name, limit=5)
        worked[name] = len(leases)
        for lease in leases:
            store.ack(lease)
    harness.clock.advance(away)
    harness.fire()
    harness.trim()
    harness.fire()
    for name, before in worked.items():
        assert before == (steps > 1)
        late = steps == 1 and away > MINUTE and name == "ski"  # nobody had decided, and it is late now
        assert before + len(store.claim(name, limit=5)) == (not late)
        seen = store.schedules.get(name)
        assert (seen.fired, seen.next) == (not late, seen.created_at + timedelta(days=60))


def test_a_scheduler_that_pauses_between_two_steps_fires_nothing_again(store: Store, harness: Harness) -> None:
    """A process that was stopped goes on after others have gone on without it."""
    store.queues.put("jobs", retention=0, idempotency_window=0)
    put(store, missed="all(9)")
    for minute in range(1, 4):
        harness.clock.advance(MINUTE)
        sleeper = steps_of(harness.core())
        for _ in range(minute - 1):
            next(sleeper)
        harness.fire()
        if minute == 3:
            harness.clock.advance(2 * DAY)
            put(store, paused=True)
        for lease in store.claim("jobs", limit=9):
            store.ack(lease)
        harness.trim()
        for _ in sleeper:
            pass
        assert store.claim("jobs", limit=9) == []
    assert store.schedules.get("s").fired == 3


def test_a_schedule_that_was_changed_between_two_steps_does_not_fire_again(store: Store, harness: Harness) -> None:
    put(store)
    harness.clock.advance(MINUTE)
    dying = steps_of(harness.core())
    next(dying)
    next(dying)
    dying.close()
    put(store, queue="elsewhere", payload="changed")
    harness.fire()
    assert fired(store) == ["01-01T00:01"]
    assert fired(store, "elsewhere") == []
    assert store.schedules.get("s").last == harness.clock.time
    harness.clock.advance(MINUTE)
    harness.fire()
    assert fired(store, "elsewhere") == ["01-01T00:02"]


def test_a_schedule_created_again_under_its_name_has_new_ticks(store: Store, harness: Harness) -> None:
    put(store, every=HOUR)
    harness.clock.advance(HOUR)
    harness.fire()
    store.schedules.delete("s")
    put(store, "s", queue="others", every=None, cron="0 * * * *", payload="new")
    harness.fire()
    assert fired(store, "others") == []
    harness.clock.advance(HOUR)
    harness.fire()
    assert (fired(store), fired(store, "others")) == (["01-01T01:00"], ["01-01T02:00"])


# -- time that jumps


def named(missed: str) -> str:
    return missed.strip(")").replace("(", "-")


def test_missed_ticks_are_skipped_or_caught_up(store: Store, harness: Harness) -> None:
    days = [f"01-0{day}T00:00" for day in range(2, 5)]
    expected = {"skip": [], "once": days[2:], "all(2)": days[1:], "all(9)": days}
    for missed in expected:
        put(store, named(missed), queue=named(missed), every=DAY, missed=missed)
    harness.clock.advance(3.5 * DAY)
    harness.fire()
    for missed, ticks in expected.items():
        assert fired(store, named(missed)) == ticks
    harness.clock.advance(DAY / 2)
    harness.fire()
    for missed, ticks in expected.items():
        assert fired(store, named(missed)) == [*ticks, "01-05T00:00"]


def test_a_tick_that_is_a_little_late_is_not_missed(store: Store, harness: Harness) -> None:
    put(store, every=DAY, missed="skip")
    harness.clock.advance(DAY + 59)
    harness.fire()
    assert fired(store) == ["01-02T00:00"]


def test_a_clock_that_is_set_back_fires_no_tick_again(store: Store, harness: Harness) -> None:
    put(store, missed="all(9)")
    harness.clock.advance(3 * MINUTE)
    harness.fire()
    harness.clock.advance(-2 * MINUTE)
    for _ in range(4):
        harness.fire()
        harness.clock.advance(MINUTE)
    harness.fire()
    assert fired(store) == [f"01-01T00:0{minute}" for minute in (1, 2, 3, 4, 5)]


@pytest.mark.parametrize(
    ("tz", "eve", "cron", "expected"),
    [
        ("Europe/Rome", "2026-03-27", "30 2 * * *", ["03-28T01:30", "03-29T01:00", "03-30T00:30"]),
        ("Europe/Rome", "2026-10-23", "30 2 * * *", ["10-24T00:30", "10-25T00:30", "10-26T01:30"]),
        ("America/New_York", "2026-10-30", "30 1 * * *", ["10-31T05:30", "11-01T05:30", "11-02T06:30"]),
    ],
)  # fmt: skip
def test_each_day_has_one_tick_across_changes_of_the_clock(
    store: Store, harness: Harness, tz: str, eve: str, cron: str, expected: list[str]
) -> None:
    harness.clock.advance((datetime.fromisoformat(f"{eve}T12:00Z") - harness.clock.time).total_seconds())
    put(store, every=None, cron=cron, tz=tz)
    for _ in range(3 * 24):
        harness.clock.advance(HOUR)
        Scheduler(harness.core()).fire()
    harness.clock.advance(HOUR)
    harness.fire()
    assert fired(store) == expected


# -- what cannot be published


def test_a_tick_that_is_refused_is_tried_again_and_reported(store: Store, harness: Harness) -> None:
    store.queues.put("jobs", max_depth=1)
    blocker = store.publish("jobs", "blocker")
    put(store, missed="once", type="tick")
    scheduler = Scheduler(harness.core())
    harness.clock.advance(MINUTE)
    scheduler.fire()
    seen = store.schedules.get("s")
    assert "full" in (seen.error or "")
    assert seen.next == harness.clock.time
    harness.clock.advance(MINUTE)
    scheduler.fire()
    store.cancel(blocker.id)
    harness.clock.advance(MINUTE)
    scheduler.fire()
    assert fired(store)[0] == "01-01T00:01"
    assert store.schedules.get("s").error is None or store.stats("jobs").ready == 1
    with pytest.raises(QueueFull):
        store.publish("jobs", "full again")


def test_a_refused_schedule_does_not_delay_others(store: Store, harness: Harness) -> None:
    put(store, "a", queue="shut")
    put(store, "b")
    store.publish("shut", 1)
    store.close_queue("shut")
    harness.clock.advance(MINUTE)
    harness.fire()
    assert fired(store) == ["01-01T00:01"]
    assert "closed" in (store.schedules.get("a").error or "")
    store.resume("shut")
    harness.fire()
    assert fired(store, "shut") == ["01-01T00:01"]
    assert store.schedules.get("a").error is None
