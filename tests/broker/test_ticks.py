"""When schedules fire: cron in its zone, across changes of the clock; intervals; jitter; missed ticks."""

from __future__ import annotations

import contextlib
import itertools
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tampu.broker.schedules import ticks
from tampu.broker.schedules.ticks import Decision, Timing, decide, due, following, latest
from tampu.model.errors import InvalidMessage
from tampu.model.times import SECOND, instant, moment

ROME, NEW_YORK = "Europe/Rome", "America/New_York"
DAY = 86_400 * SECOND
TURNS = {
    ROME: ("2026-03-29T01:00Z", "2026-10-25T01:00Z"),
    NEW_YORK: ("2026-03-08T07:00Z", "2026-11-01T06:00Z"),
    "Australia/Lord_Howe": ("2026-04-04T15:00Z", "2026-10-03T15:30Z"),  # by half an hour
    "Africa/Cairo": ("2026-04-23T22:00Z", "2026-10-29T21:00Z"),  # at midnight
    "America/Santiago": ("2026-04-05T03:00Z", "2026-09-06T04:00Z"),
}
"""When clocks change, by zone."""
CRONS = ["30 2 * * *", "*/5 * * * *", "0 2,3 * * *", "15 0-4 * * *", "0 */2 * * *", "0 0 * * *", "59 1 * * 0"]


def at(text: str) -> int:
    return instant(datetime.fromisoformat(text), "at")


def walls(cron: str, tz: str, since: str, until: str) -> list[str]:
    """The ticks between two moments, as clocks on the wall show them."""
    found: list[str] = []
    tick = at(since)
    while True:
        following_one = following(Timing(cron=cron, tz=tz), tick)
        if following_one is None or following_one > at(until):
            return found
        tick = following_one
        found.append(moment(tick).astimezone(ZoneInfo(tz)).isoformat(timespec="minutes"))


def test_a_wall_clock_time_that_does_not_exist_fires_when_the_gap_ends() -> None:
    assert walls("30 2 * * *", ROME, "2026-03-28T00:00Z", "2026-03-30T23:00Z") == [
        "2026-03-28T02:30+01:00",
        "2026-03-29T03:00+02:00",
        "2026-03-30T02:30+02:00",
    ]
    assert walls("30 2 * * *", NEW_YORK, "2026-03-07T12:00Z", "2026-03-09T12:00Z") == [
        "2026-03-08T03:00-04:00",
        "2026-03-09T02:30-04:00",
    ]


def test_a_wall_clock_time_that_comes_twice_fires_the_first_time_only() -> None:
    assert walls("30 2 * * *", ROME, "2026-10-24T12:00Z", "2026-10-26T12:00Z") == [
        "2026-10-25T02:30+02:00",
        "2026-10-26T02:30+01:00",
    ]
    assert walls("30 1 * * *", NEW_YORK, "2026-10-31T12:00Z", "2026-11-02T12:00Z") == [
        "2026-11-01T01:30-04:00",
        "2026-11-02T01:30-05:00",
    ]


def test_what_runs_every_few_minutes_keeps_its_distance_across_changes_of_the_clock() -> None:
    for since in ("2026-03-28T20:00Z", "2026-10-24T20:00Z"):
        found = latest(Timing(cron="*/15 * * * *", tz=ROME), at(since), at(since) + DAY, 1000)
        assert {b - a for a, b in itertools.pairwise(found)} == {900 * SECOND}
        assert len(found) == 96


@pytest.mark.parametrize("tz", TURNS)
@pytest.mark.parametrize("cron", CRONS)
def test_the_ticks_are_the_same_from_wherever_one_looks(tz: str, cron: str) -> None:
    """A process that starts in the middle of a repeated hour must not see ticks that others do not see."""
    timing = Timing(cron=cron, tz=tz)
    for turn in map(at, TURNS[tz]):
        whole = latest(timing, turn - DAY, turn + 8 * DAY, 10_000)
        for start in range(turn - DAY // 8, turn + DAY // 8, 7 * 60 * SECOND):
            after = [tick for tick in whole if tick > start]
            assert following(timing, start) == after[0]
            assert latest(timing, start, turn + 8 * DAY, 3) == after[-3:]


def test_the_last_ticks_of_years_are_found_without_counting_them_all() -> None:
    found = latest(Timing(cron="* * * * *"), 0, at("2026-06-01T00:00:30Z"), 3)
    assert [moment(t).isoformat(timespec="minutes")[:16] for t in found] == [
        "2026-05-31T23:58",
        "2026-05-31T23:59",
        "2026-06-01T00:00",
    ]
    assert latest(Timing(every_us=SECOND), 0, at("2026-06-01T00:00Z"), 1) == [at("2026-06-01T00:00Z")]


def test_an_interval_is_counted_from_its_anchor() -> None:
    timing = Timing(every_us=10 * SECOND, anchor_us=3 * SECOND)
    assert following(timing, 0) == 3 * SECOND
    assert following(timing, 3 * SECOND) == 13 * SECOND
    assert latest(timing, 3 * SECOND, 40 * SECOND, 2) == [23 * SECOND, 33 * SECOND]
    assert latest(timing, 3 * SECOND, 12 * SECOND, 2) == []


def test_start_and_end_are_both_inside() -> None:
    timing = Timing(cron="0 * * * *", start_us=at("2026-01-01T10:00Z"), end_us=at("2026-01-01T12:00Z"))
    assert following(timing, 0) == at("2026-01-01T10:00Z")
    assert following(timing, at("2026-01-01T11:00Z")) == at("2026-01-01T12:00Z")
    assert following(timing, at("2026-01-01T12:00Z")) is None
    assert latest(timing, 0, at("2026-01-02T00:00Z"), 9) == [at(f"2026-01-01T{hour}:00Z") for hour in (10, 11, 12)]


@given(st.integers(1, 3600), st.integers(0, 7200), st.integers(0, 10**5), st.text("abcdef", min_size=4, max_size=4))
def test_jitter_is_the_same_for_everybody_and_never_overtakes_the_next_tick(
    every: int, jitter: int, k: int, seed: str
) -> None:
    timing = Timing(every_us=every * SECOND)
    tick = k * every * SECOND
    late = due(timing, jitter * SECOND, seed, tick) - tick
    assert late == due(timing, jitter * SECOND, seed, tick) - tick
    assert 0 <= late <= min(every, jitter) * SECOND


def test_jitter_spreads_ticks() -> None:
    timing = Timing(every_us=3600 * SECOND)
    late = {due(timing, 60 * SECOND, "seed", k * 3600 * SECOND) - k * 3600 * SECOND for k in range(100)}
    assert len(late) == 100
    assert max(late) > 45 * SECOND > 15 * SECOND > min(late)


def decided(missed: str, minutes_away: float, **more: int) -> list[int] | None:
    """Of a schedule each minute, nobody looked for so long since minute 0: which minutes fire."""
    timing = Timing(every_us=60 * SECOND)
    now = round(minutes_away * 60 * SECOND)
    found: Decision | None = decide(
        timing, jitter_us=0, seed="", missed=missed, after_us=0, left=more.get("left"), now_us=now
    )
    if found is not None:
        assert found.after_us == now // (60 * SECOND) * 60 * SECOND
    return None if found is None else [tick // (60 * SECOND) for tick in found.fire]


def test_missed_ticks() -> None:
    for missed in ("skip", "once", "all(3)"):
        assert decided(missed, 0.9) is None
        assert decided(missed, 1) == [1]
        assert decided(missed, 1.5) == [1]
    assert decided("skip", 5.5) == [5]  # the newest is on time
    assert decided("once", 5.5) == [5]
    assert decided("all(3)", 5.5) == [3, 4, 5]
    assert decided("all(1000)", 5.5) == [1, 2, 3, 4, 5]


def test_skip_drops_also_the_newest_tick_when_it_is_too_late() -> None:
    timing = Timing(every_us=3600 * SECOND)
    hour = 3600 * SECOND
    for late, fire in ((60, (hour,)), (61, ())):
        found = decide(timing, jitter_us=0, seed="", missed="skip", after_us=0, left=None, now_us=hour + late * SECOND)
        assert found == Decision(fire, hour)


def test_a_limit_cuts_what_fires() -> None:
    assert decided("all(5)", 5.5, left=2) == [1, 2]
    assert decided("once", 5.5, left=2) == [5]


def test_a_clock_that_went_back_fires_nothing() -> None:
    found = decide(
        Timing(every_us=SECOND), jitter_us=0, seed="", missed="all(9)", after_us=DAY, left=None, now_us=DAY - SECOND
    )
    assert found is None


@pytest.mark.parametrize(
    "cron", ["", "* * * *", "* * * * * *", "61 * * * *", "x * * * *", "0 0 31 2 *", "@reboot", "*/0 * * * *", "9" * 300]
)
def test_a_bad_cron_expression_is_refused(cron: str) -> None:
    with pytest.raises(InvalidMessage) as refused:
        ticks.checked_cron(cron, "UTC", 0)
    assert refused.value.field == "cron"


@given(st.text("0123456789*/-,#LW MONJAN@", max_size=30))
@example("5L/2 * * * *")
@example("* * L/2 * 1#2/3")
def test_any_text_is_an_expression_or_refused(text: str) -> None:
    with contextlib.suppress(InvalidMessage):
        found = ticks.checked_cron(text, ROME, at("2026-01-01T00:00Z"))
        assert following(Timing(cron=found, tz=ROME), at("2026-01-01T00:00Z"))


def test_shorthands_are_expressions() -> None:
    assert ticks.checked_cron(" @Daily ", "UTC", 0) == "0 0 * * *"
    assert ticks.checked_cron("*/5  *  * * MON", "UTC", 0) == "*/5 * * * MON"


@pytest.mark.parametrize("tz", ["", "Mars/Base", "../../etc/passwd", "Europe", "x" * 101, "\0"])
def test_a_zone_that_is_none_is_refused(tz: str) -> None:
    with pytest.raises(InvalidMessage) as refused:
        ticks.checked_zone(tz)
    assert refused.value.field == "tz"


@pytest.mark.parametrize("missed", ["", "some", "all(0)", "all(1001)", "all()", "ALL"])
def test_a_policy_for_missed_ticks_that_is_none_is_refused(missed: str) -> None:
    with pytest.raises(InvalidMessage):
        ticks.checked_missed(missed)
    assert ticks.checked_missed("all") == "all(1000)"


def test_ticks_end_with_the_last_year_of_datetime() -> None:
    late = instant(datetime(2199, 12, 31, tzinfo=UTC), "late")
    assert following(Timing(cron="0 0 1 7 *"), late) is None
    assert following(Timing(every_us=timedelta(days=36_500) // timedelta(microseconds=1)), late) is None
