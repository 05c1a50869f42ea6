"""Forecasts against cases computed by hand."""

from datetime import UTC, datetime, timedelta

import pytest

from tampu.lake.insights.clustering import alike, cluster, words
from tampu.lake.insights.forecast import Drain, HourOfWeek, Minute, capacity, drain, quantile

MONDAY = datetime(2026, 3, 2, tzinfo=UTC)


def minutes(*rows: tuple[int, int, int, int]) -> list[Minute]:
    return [Minute(MONDAY + timedelta(minutes=n), came, went, depth) for n, came, went, depth in rows]


def after(n: int) -> datetime:
    return MONDAY + timedelta(minutes=n)


def test_steady_backlog_drains_at_the_difference_of_its_rates():
    found = drain(minutes(*((n, 60, 180, 1200) for n in range(60))), after(60))
    assert found == Drain("drains", 1200, 1.0, 3.0, 600.0, 600.0, 600.0)


def test_range_is_what_the_windows_say():
    # The last 5 minutes: 2 in, 4 out a second. The 10 before: nothing. The 45 before those: 0 in, 1 out.
    rows = [(n, 0, 60, 0) for n in range(45)] + [(n, 120, 240, 1000) for n in range(55, 60)]
    found = drain(minutes(*rows), after(60))
    fast, middle, slow = 1000 / 2, 1000 / (5 * 120 / 900), 1000 / ((45 * 60 + 5 * 120) / 3600)
    assert found.outlook == "drains"
    assert found.seconds == pytest.approx(middle)
    assert found.soonest == pytest.approx(min(fast, middle, slow))
    assert found.latest == pytest.approx(max(middle, slow))


def test_window_without_progress_leaves_the_end_open():
    rows = [(n, 100, 0, 500) for n in range(45)] + [(n, 0, 60, 500) for n in range(45, 60)]
    found = drain(minutes(*rows), after(60))
    assert (found.seconds, found.soonest, found.latest) == (500.0, 500.0, None)


def test_more_in_than_out_grows_and_no_change_stands():
    assert drain(minutes((0, 10, 5, 5)), after(1)).outlook == "grows"
    assert drain(minutes((0, 5, 5, 5)), after(1)).outlook == "stands"
    assert drain(minutes((0, 0, 0, 7)), after(90)) == Drain("stands", 7, 0.0, 0.0)


def test_nothing_waits():
    assert drain([], after(0)).outlook == "empty"
    assert drain(minutes((0, 60, 60, 0)), after(1)) == Drain("empty", 0, 1.0, 1.0)


def test_huge_numbers_stay_finite():
    found = drain(minutes((0, 0, 1, 2**60)), after(1))
    assert (found.outlook, found.depth) == ("stands", 2**60)


def test_capacity_of_an_hour_over_three_weeks():
    arrivals = {MONDAY + timedelta(weeks=w, hours=9): n for w, n in enumerate((100, 200, 1000))}
    found = {(c.weekday, c.hour): c for c in capacity(arrivals, 9.0)}
    # p95 of 100, 200, 1000 lies 0.9 of the way from 200 to 1000: 920, so 8280 s of work: 3.29 workers at 70 %.
    nine = found[0, 9]
    assert (nine.weeks, nine.median, nine.workers) == (3, 200.0, 4)
    assert nine.p95 == pytest.approx(920.0)
    assert nine.run_seconds == pytest.approx(8280.0)
    assert found[1, 0] == HourOfWeek(1, 0, 2, 0.0, 0.0, 0.0, 0)
    assert len(found) == 168


def test_exactly_full_workers_are_not_rounded_up():
    (cell,) = capacity({MONDAY: 252}, 10.0)
    assert (cell.run_seconds, cell.workers) == (2520.0, 1)


def test_capacity_of_nothing():
    assert capacity({}, 1.0) == []


def test_quantile_lies_between_neighbours():
    assert quantile([4, 1, 3, 2], 0.5) == 2.5
    assert quantile([5], 0.95) == 5


def failure(fingerprint: str, error: str | None, **more: object) -> dict[str, object]:
    return {
        "tenant": "default", "queue": "orders", "fingerprint": fingerprint, "error": error, "attempts": 1,
        "messages": 1, "dead": 0, "types": ["t"], "first_at": MONDAY, "last_at": MONDAY, "sample_ids": ["a"], **more,
    }  # fmt: skip


def test_days_of_a_fingerprint_are_one_failure():
    late = MONDAY + timedelta(days=1)
    rows = [
        failure("f", "KeyError: 'a'", dead=2, sample_ids=["1"]),
        failure("f", "KeyError: 'b'", attempts=4, last_at=late, sample_ids=["2", "1"], queue="emails"),
    ]
    (found,) = cluster(rows)
    assert (found.error, found.dead, found.attempts, found.messages) == ("KeyError: 'b'", 2, 5, 2)
    assert (found.first_at, found.last_at, found.queues) == (MONDAY, late, ("emails", "orders"))
    assert found.sample_ids == ("2", "1")


def test_texts_that_are_nearly_the_same_are_joined_and_others_are_not():
    rows = [
        failure("a", "TimeoutError: no answer from db-7.internal after 30 s", dead=1),
        failure("b", "TimeoutError: no answer from host9 after 31 s", dead=1),
        failure("c", "ValueError: no answer from host9 after 31 s", attempts=9),
        failure("d", "TimeoutError: the pool is closed"),
    ]
    found = cluster(rows)
    assert [c.fingerprints for c in found] == [("a", "b"), ("c",), ("d",)]
    assert cluster(reversed(rows)) == found


def test_tenants_are_never_joined():
    assert len(cluster([failure("a", "E: x"), failure("a", "E: x", tenant="other")])) == 2


def test_failures_without_text_or_time_are_counted():
    (found,) = cluster([failure("", None, dead=None, last_at=None, first_at=None, types=None, sample_ids=None)])
    assert (found.error, found.dead, found.last_at, found.sample_ids) == ("", 0, None, ())


def test_words_leave_out_what_varies():
    assert words("OSError: '/tmp/x' at 0xfe12 id 12") == ("oserror", "?", "at", "?", "id", "?")
    assert not alike(words("A: x"), words("B: x"))
