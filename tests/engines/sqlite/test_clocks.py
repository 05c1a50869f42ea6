"""A clock that was ahead for one call and was set right: nothing stands still until that time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import tampu
from tampu.broker import access
from tampu.broker.store import Store
from tampu.maintenance.tasks import Trimmer
from tampu.model.times import SECOND
from tests.conformance.harness import FakeClock

YEAR = 365 * 86_400


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def store(clock: FakeClock) -> Iterator[Store]:
    with tampu.open("memory://", maintenance=False, clock=clock) as store:
        yield store


def test_retention_goes_on_past_what_was_written_ahead_of_time(store: Store, clock: FakeClock) -> None:
    core: Any = access.core(store)
    trimmer = Trimmer(core, 7 * 86_400 * SECOND)

    def work(times: int = 1) -> None:
        for _ in range(times):
            store.publish("jobs", 1)
            store.ack(store.claim("jobs")[0])

    work()
    clock.advance(YEAR)
    work(3)
    clock.advance(-YEAR)
    trimmer.step()
    assert (store.stats("jobs").done, len(store.journal().transitions)) == (4, 12), "nothing tells how old they are"
    for _ in range(40):
        clock.advance(86_400)
        work()
        while trimmer.step():
            pass
    assert store.stats("jobs").done <= 8
    assert len(store.journal(limit=1000).transitions) <= 24
