"""Ticks of schedules: each fires exactly once, whoever looks, dies, restarts or moves the clock."""

from __future__ import annotations

import threading
from collections.abc import Generator
from datetime import datetime, timedelta
from typing import Any

import pytest

from tampu import QueueFull, TampuError
from tampu.broker import firing
from tampu.broker.core import Core
from tampu.broker.queue import Queue
from tampu.engines.port import PutDocument, Together
from tampu.keepers.scheduler import Scheduler
from tests.conformance.house import House
from tests.conformance.ticking import DAY, HOUR, MINUTE, fired, put


def test_five_schedulers_fire_each_tick_once(q: Queue, house: House) -> None:
    """Each has its own memory, as processes have; they race for every tick of three schedules."""
    for name in "abc":
        put(q, name, queue=f"q.{name}", every=MINUTE, missed="all(10)")
    keepers = [Scheduler(house.core()) for _ in range(5)]
    failed: list[BaseException] = []

    def work(keeper: Scheduler, start: threading.Barrier) -> None:
        try:
            start.wait(60)
            keeper.forget()
            keeper.fire()
        except BaseException as error:  # told below
            failed.append(error)

    for _ in range(6):
        house.clock.advance(MINUTE)
        start = threading.Barrier(5)
        threads = [threading.Thread(target=work, args=(keeper, start)) for keeper in keepers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert failed == []
    for name in "abc":
        assert fired(q, f"q.{name}") == [f"01-01T00:0{minute}" for minute in range(1, 7)]
        assert q.schedules.get(name).fired == 6


def test_a_schedule_goes_on_after_a_restart(house: House) -> None:
    q = house.open()
    put(q, missed="all(5)")
    house.clock.advance(MINUTE)
    house.fire()
    q = house.reopen()
    house.fire()
    house.clock.advance(MINUTE)
    house.fire()
    assert fired(q) == ["01-01T00:01", "01-01T00:02"]


class Died(BaseException):
    """A process that ends here."""


def steps_of(core: Core, name: str = "s") -> Generator[None]:
    """Fire, giving way before and after each thing that is written."""
    work: Any = firing.fire("default", name)
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
def test_who_dies_between_any_two_steps_leaves_a_tick_that_fires_once(
    q: Queue, house: House, steps: int, away: float
) -> None:
    """Also when nobody is there for longer than any key is remembered, and the message has been worked off."""
    q.queues.put("*", retention=0, idempotency_window=0)
    worked = {}
    for missed in ("skip", "once", "all(3)"):
        name = missed[:3]
        put(q, name, queue=name, every=30 * DAY, missed=missed, limit=2)
    house.clock.advance(30 * DAY)
    for name in ("ski", "onc", "all"):
        dying = steps_of(house.core(), name)
        for _ in range(steps):
            next(dying)
        dying.close()
        leases = q.claim(name, limit=5)
        worked[name] = len(leases)
        for lease in leases:
            q.ack(lease)
    house.clock.advance(away)
    house.fire()
    house.trim()
    house.fire()
    for name, before in worked.items():
        assert before == (steps > 1)
        late = steps == 1 and away > MINUTE and name == "ski"  # nobody had decided, and it is late now
        assert before + len(q.claim(name, limit=5)) == (not late)
        seen = q.schedules.get(name)
        assert (seen.fired, seen.next) == (not late, seen.created_at + timedelta(days=60))


def test_who_was_away_between_two_steps_and_comes_back_late_fires_nothing_again(q: Queue, house: House) -> None:
    """A process that was stopped goes on after others have gone on without it."""
    q.queues.put("jobs", retention=0, idempotency_window=0)
    put(q, missed="all(9)")
    for minute in range(1, 4):
        house.clock.advance(MINUTE)
        sleeper = steps_of(house.core())
        for _ in range(minute - 1):
            next(sleeper)
        house.fire()
        if minute == 3:
            house.clock.advance(2 * DAY)
            put(q, paused=True)
        for lease in q.claim("jobs", limit=9):
            q.ack(lease)
        house.trim()
        for _ in sleeper:
            pass
        assert q.claim("jobs", limit=9) == []
    assert q.schedules.get("s").fired == 3


def test_a_schedule_that_was_changed_between_two_steps_does_not_fire_again(q: Queue, house: House) -> None:
    put(q)
    house.clock.advance(MINUTE)
    dying = steps_of(house.core())
    next(dying)
    next(dying)
    dying.close()
    put(q, queue="elsewhere", payload="changed")
    house.fire()
    assert fired(q) == ["01-01T00:01"]
    assert fired(q, "elsewhere") == []
    assert q.schedules.get("s").last == house.clock.time
    house.clock.advance(MINUTE)
    house.fire()
    assert fired(q, "elsewhere") == ["01-01T00:02"]


def test_a_schedule_made_again_under_its_name_has_ticks_of_its_own(q: Queue, house: House) -> None:
    put(q, every=HOUR)
    house.clock.advance(HOUR)
    house.fire()
    q.schedules.delete("s")
    put(q, "s", queue="others", every=None, cron="0 * * * *", payload="new")
    house.fire()
    assert fired(q, "others") == []
    house.clock.advance(HOUR)
    house.fire()
    assert (fired(q), fired(q, "others")) == (["01-01T01:00"], ["01-01T02:00"])


# -- time that jumps


def named(missed: str) -> str:
    return missed.strip(")").replace("(", "-")


def test_missed_ticks_are_skipped_or_caught_up(q: Queue, house: House) -> None:
    days = [f"01-0{day}T00:00" for day in range(2, 5)]
    expected = {"skip": [], "once": days[2:], "all(2)": days[1:], "all(9)": days}
    for missed in expected:
        put(q, named(missed), queue=named(missed), every=DAY, missed=missed)
    house.clock.advance(3.5 * DAY)
    house.fire()
    for missed, ticks in expected.items():
        assert fired(q, named(missed)) == ticks
    house.clock.advance(DAY / 2)
    house.fire()
    for missed, ticks in expected.items():
        assert fired(q, named(missed)) == [*ticks, "01-05T00:00"]


def test_a_tick_that_is_a_little_late_is_not_missed(q: Queue, house: House) -> None:
    put(q, every=DAY, missed="skip")
    house.clock.advance(DAY + 59)
    house.fire()
    assert fired(q) == ["01-02T00:00"]


def test_a_clock_that_goes_back_fires_no_tick_again(q: Queue, house: House) -> None:
    put(q, missed="all(9)")
    house.clock.advance(3 * MINUTE)
    house.fire()
    house.clock.advance(-2 * MINUTE)
    for _ in range(4):
        house.fire()
        house.clock.advance(MINUTE)
    house.fire()
    assert fired(q) == [f"01-01T00:0{minute}" for minute in (1, 2, 3, 4, 5)]


@pytest.mark.parametrize(
    ("tz", "eve", "cron", "expected"),
    [
        ("Europe/Rome", "2026-03-27", "30 2 * * *", ["03-28T01:30", "03-29T01:00", "03-30T00:30"]),
        ("Europe/Rome", "2026-10-23", "30 2 * * *", ["10-24T00:30", "10-25T00:30", "10-26T01:30"]),
        ("America/New_York", "2026-10-30", "30 1 * * *", ["10-31T05:30", "11-01T05:30", "11-02T06:30"]),
    ],
)  # fmt: skip
def test_each_day_has_one_tick_across_changes_of_the_clock(
    q: Queue, house: House, tz: str, eve: str, cron: str, expected: list[str]
) -> None:
    house.clock.advance((datetime.fromisoformat(f"{eve}T12:00Z") - house.clock.time).total_seconds())
    put(q, every=None, cron=cron, tz=tz)
    for _ in range(3 * 24):
        house.clock.advance(HOUR)
        Scheduler(house.core()).fire()
    house.clock.advance(HOUR)
    house.fire()
    assert fired(q) == expected


# -- what can not be published


def test_a_tick_that_is_refused_is_tried_again_and_told(q: Queue, house: House) -> None:
    q.queues.put("jobs", max_depth=1)
    blocker = q.publish("jobs", "blocker")
    put(q, missed="once", type="tick")
    keeper = Scheduler(house.core())
    house.clock.advance(MINUTE)
    keeper.fire()
    seen = q.schedules.get("s")
    assert "full" in (seen.error or "")
    assert seen.next == house.clock.time
    house.clock.advance(MINUTE)
    keeper.fire()
    q.cancel(blocker.id)
    house.clock.advance(MINUTE)
    keeper.fire()
    assert fired(q)[0] == "01-01T00:01"
    assert q.schedules.get("s").error is None or q.stats("jobs").ready == 1
    with pytest.raises(QueueFull):
        q.publish("jobs", "full again")


def test_a_refused_schedule_does_not_hold_up_others(q: Queue, house: House) -> None:
    put(q, "a", queue="shut")
    put(q, "b")
    q.publish("shut", 1)
    q.close_queue("shut")
    house.clock.advance(MINUTE)
    house.fire()
    assert fired(q) == ["01-01T00:01"]
    assert "closed" in (q.schedules.get("a").error or "")
    q.resume("shut")
    house.fire()
    assert fired(q, "shut") == ["01-01T00:01"]
    assert q.schedules.get("a").error is None
