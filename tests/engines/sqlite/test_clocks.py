"""A clock that was ahead for one call and was set right: nothing stands still until that time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import tampu
from tampu.broker import access
from tampu.broker.store import Store
from tampu.maintenance.trimmer import Trimmer
from tampu.model.times import SECOND
from tests.conformance.harness import FakeClock

YEAR = 365 * 86_400


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def q(clock: FakeClock) -> Iterator[Store]:
    with tampu.open("memory://", maintenance=False, clock=clock) as q:
        yield q


def test_retention_goes_on_past_what_was_written_ahead_of_time(q: Store, clock: FakeClock) -> None:
    core: Any = access.core(q)
    trimmer = Trimmer(core, 7 * 86_400 * SECOND)

    def work(times: int = 1) -> None:
        for _ in range(times):
            q.publish("jobs", 1)
            q.ack(q.claim("jobs")[0])

    work()
    clock.advance(YEAR)
    work(3)
    clock.advance(-YEAR)
    trimmer.step()
    assert (q.stats("jobs").done, len(q.journal().transitions)) == (4, 12), "nothing tells how old they are"
    for _ in range(40):
        clock.advance(86_400)
        work()
        while trimmer.step():
            pass
    assert q.stats("jobs").done <= 8
    assert len(q.journal(limit=1000).transitions) <= 24
