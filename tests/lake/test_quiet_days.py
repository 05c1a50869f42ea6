"""Which days of gold a run computes anew: a backlog that stands over a day without events gives it rows too."""

from datetime import date
from typing import Any
from unittest.mock import create_autospec

import pytest

from tampu.lake.rounds import Round
from tampu.lake.storage import Snapshot


class File:
    def __init__(self, day: int, new: bool) -> None:
        self.day, self.new, self.path = date(2026, 1, day).isoformat(), new, f"{day}-{new}"


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ([], [3], [3]),
        ([], [3, 6], [3, 4, 5, 6]),
        ([3], [3], [3]),
        ([2, 3], [6], [3, 4, 5, 6]),
        ([5], [2, 6], [2, 5, 6]),
        ([5], [], []),
    ],
)
def test_days_reach_from_the_newest_event_before_to_the_newest_of_all(
    old: list[int], new: list[int], expected: list[int]
) -> None:
    files = [File(day, False) for day in old] + [File(day, True) for day in new]
    events: Any = create_autospec(Snapshot, instance=True)
    events.files.side_effect = lambda days=None, after=None: [f for f in files if f.new or after is None]
    run: Any = object.__new__(Round)
    run._table = lambda name: events
    assert sorted(run._days_since({"0": 10})) == [date(2026, 1, day) for day in expected]
