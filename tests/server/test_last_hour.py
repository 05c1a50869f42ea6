"""The last hour, read from the journal: rates, depth, and how long messages wait and run."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

import tampu
from tampu.broker import access
from tampu.engines.port import Engine
from tampu.server.console import last_hour
from tampu.server.console.last_hour import LastHour, Times
from tampu.testing import FakeClock

START = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(START)


@pytest.fixture
def store(clock: FakeClock) -> Iterator[tampu.Store]:
    with tampu.open("memory://", clock=clock, maintenance=False) as made:
        yield made


def _engine(store: tampu.Store) -> Engine:
    return access.core(store).engine


def _read(found: LastHour) -> None:
    """All of it: a page would wait only for a moment."""
    found.read()
    while not found.caught_up:
        found.read()


def test_rates_depth_and_times_of_each_minute(store: tampu.Store, clock: FakeClock) -> None:
    store.queues.put("jobs", max_attempts=1)
    store.publish_many("jobs", range(5))
    clock.advance(30)
    leases = store.claim("jobs", limit=3)
    clock.advance(10)
    for lease in leases[:2]:
        store.ack(lease)
    store.nack(leases[2], "no")
    clock.advance(80)
    found = LastHour(_engine(store))
    _read(found)
    hour = found.hour("default", {"jobs": store.stats("jobs").depth})
    assert not hour.reading
    assert hour.at[-1] == int(START.timestamp()) + 120
    assert (hour.published[-3:], hour.done[-3:]) == ([5, 0, 0], [2, 0, 0])
    assert (hour.failed[-3:], hour.dead[-3:]) == ([1, 0, 0], [1, 0, 0])
    assert hour.depth[-4:] == [0, 2, 2, 2]
    wait, run = hour.waits[0][-3], hour.runs[0][-3]
    assert wait is not None
    assert run is not None
    assert 27 <= wait <= 33
    assert 9 <= run <= 11


def test_what_is_older_than_an_hour_is_not_counted(store: tampu.Store, clock: FakeClock) -> None:
    store.publish_many("jobs", range(50))
    clock.advance(3 * 3600)
    store.publish_many("jobs", range(7))
    found = LastHour(_engine(store))
    _read(found)
    assert sum(found.hour("default", {"jobs": 57}).published) == 7
    clock.advance(2 * 3600)
    _read(found)
    assert sum(found.hour("default", {"jobs": 57}).published) == 0


def test_it_is_read_on_from_where_it_was(store: tampu.Store, clock: FakeClock) -> None:
    found = LastHour(_engine(store))
    for count in (3, 4):
        store.publish_many("jobs", range(count))
        _read(found)
    store.publish("others", 1)
    _read(found)
    assert sum(found.hour("default", {"jobs": 7}).published) == 7
    assert sorted(found.queues("default")) == ["jobs", "others"]
    assert found.queues("elsewhere") == []


def test_a_long_journal_is_read_from_its_end(
    store: tampu.Store, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(last_hour, "_MOST", 100)
    store.publish_many("jobs", range(250))
    clock.advance(60)
    found = LastHour(_engine(store))
    _read(found)
    hour = found.hour("default", {"jobs": 250})
    assert sum(hour.published) == 100
    assert hour.since == int(START.timestamp())


def test_with_many_messages_only_a_part_is_timed(
    store: tampu.Store, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(last_hour, "_MOST_KNOWN", 50)
    store.publish_many("jobs", range(1000))
    clock.advance(4)
    store.claim("jobs", limit=1000)
    found = LastHour(_engine(store))
    _read(found)
    assert len(found._ready) + len(found._leased) <= 50
    hour = found.hour("default", {"jobs": 1000})
    wait = hour.waits[0][-1]
    assert wait is not None
    assert 3.6 <= wait <= 4.4


def test_quantiles_are_within_a_tenth() -> None:
    times = Times()
    assert times.quantile(0.5) is None
    for second in range(1, 101):
        times.add(second)
    for q in (0.5, 0.95):
        assert times.quantile(q) == pytest.approx(100 * q, rel=0.1)
