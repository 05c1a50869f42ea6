"""A clock that was ahead for one call and was set right: nothing stands still until that time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import tampu
from tampu.broker import access
from tampu.broker.queue import Queue
from tampu.keepers.sweeper import Sweeper
from tampu.keepers.trimmer import Trimmer
from tampu.model.times import SECOND
from tests.conformance.house import FakeClock, payloads

YEAR = 365 * 86_400


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def q(clock: FakeClock) -> Iterator[Queue]:
    with tampu.open("memory://", keepers=False, clock=clock) as q:
        yield q


def test_the_rate_of_a_queue_goes_on_when_the_clock_is_set_right(q: Queue, clock: FakeClock) -> None:
    q.queues.put("jobs", rate=1, burst=1)
    q.publish_many("jobs", range(3))
    clock.advance(3600)
    assert payloads(q.claim("jobs", limit=5, lease=YEAR)) == [0]
    clock.advance(-3600)
    assert q.claim("jobs", limit=5) == []
    clock.advance(1)
    assert payloads(q.claim("jobs", limit=5, lease=YEAR)) == [1]
    clock.advance(1)
    assert payloads(q.claim("jobs", limit=5, lease=YEAR)) == [2]


def test_the_rate_of_a_group_goes_on_when_the_clock_is_set_right(q: Queue, clock: FakeClock) -> None:
    q.queues.put("jobs", group_rate=1, group_burst=1)
    q.publish_many("jobs", [tampu.NewMessage(n, group="a") for n in range(3)])
    clock.advance(3600)
    assert payloads(q.claim("jobs", limit=5, lease=YEAR)) == [0]
    clock.advance(-3600)
    core: Any = access.core(q)
    Trimmer(core, YEAR * SECOND).step()
    for n in (1, 2):
        assert q.claim("jobs", limit=5) == []
        clock.advance(1)
        Sweeper(core).sweep()
        assert payloads(q.claim("jobs", limit=5, lease=YEAR)) == [n]


def test_retention_goes_on_past_what_was_written_ahead_of_time(q: Queue, clock: FakeClock) -> None:
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
