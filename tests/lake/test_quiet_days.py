"""Which days of gold a run computes anew: a backlog that stands over a day without events gives it rows too."""

from datetime import date

import pytest

from tampu.lake.gold import standing


def days(*numbers: int) -> set[date]:
    return {date(2026, 1, number) for number in numbers}


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ([], [3], [3]),
        ([], [3, 6], [3, 4, 5, 6]),
        ([3], [3], [3]),
        ([2, 3], [6], [3, 4, 5, 6]),
        ([5], [2, 6], [2, 3, 4, 5, 6]),  # an event that came late
    ],
)
def test_days_reach_from_the_newest_event_before_to_the_newest_of_all(
    old: list[int], new: list[int], expected: list[int]
) -> None:
    assert set(standing(days(*new), days(*old))) == days(*expected)
