"""Retention of the journal when some of it was written by a clock that was ahead."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import tampu
from tampu.broker import access
from tampu.engines.port import Trim
from tampu.model.journal import Position
from tampu.model.times import SECOND
from tests.conformance.harness import FakeClock

DAY = 86_400
STEP = 50


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def store(url: str, clock: FakeClock) -> Iterator[tampu.Store]:
    with tampu.open(url, maintenance=False, clock=clock) as opened:
        yield opened


def write(store: tampu.Store, count: int) -> None:
    """So many entries of the journal."""
    for n in range(count):
        store.publish("jobs", n)


def trim(store: tampu.Store, read: Position | None = None) -> list[int]:
    """Keep a day, in small steps; how much each step has removed."""
    steps: list[int] = []
    while not steps or steps[-1]:
        steps.append(access.core(store).coalescer.submit(Trim({}, 365 * DAY * SECOND, DAY * SECOND, STEP, read)))
    return steps[:-1]


def left(store: tampu.Store) -> list[int]:
    return [moved.offset for moved in store.journal(limit=10_000).transitions]


@pytest.mark.parametrize("ahead", [1, STEP - 1, STEP, 5 * STEP])
def test_what_a_clock_wrote_that_was_ahead_keeps_nothing_longer(
    store: tampu.Store, clock: FakeClock, ahead: int
) -> None:
    write(store, 3)
    clock.advance(365 * DAY)
    write(store, ahead)
    clock.advance(-365 * DAY)
    write(store, 10 * STEP)
    clock.advance(2 * DAY)
    write(store, 2)
    total = 3 + ahead + 10 * STEP
    steps = trim(store)
    assert left(store) == [total + 1, total + 2]
    assert sum(steps) == total
    assert max(steps) <= STEP, "a step is bounded"


def test_what_it_wrote_last_stays_until_something_later_is_old(store: tampu.Store, clock: FakeClock) -> None:
    write(store, 3)
    clock.advance(365 * DAY)
    write(store, 2 * STEP)
    clock.advance(-365 * DAY)
    clock.advance(2 * DAY)
    write(store, 1)
    trim(store)
    assert left(store) == list(range(4, 2 * STEP + 5))
    clock.advance(2 * DAY)
    trim(store)
    assert left(store) == []


def test_what_a_reader_has_not_got_stays(store: tampu.Store, clock: FakeClock) -> None:
    clock.advance(365 * DAY)
    write(store, 2 * STEP)
    clock.advance(-365 * DAY)
    write(store, 2 * STEP)
    clock.advance(2 * DAY)
    kept: list[int] = []
    for read in (5, STEP + 7, 2 * STEP + 3):
        trim(store, {"default/jobs": read})
        kept = left(store)
        assert kept == list(range(kept[0], 4 * STEP + 1))
        assert kept[0] <= read + 1
    assert kept[0] == 2 * STEP + 4
