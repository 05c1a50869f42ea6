"""Alerts: what is measured, what is refused, and that an idle store is left alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import tampu
from tampu.broker import access
from tampu.broker.store import Store
from tampu.engines.port import PollStatus
from tampu.maintenance.alerts import AlertTask
from tampu.maintenance.follower import Follower
from tampu.testing import FakeClock


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def store(clock: FakeClock) -> Iterator[Store]:
    with tampu.open("memory://", maintenance=False, clock=clock) as opened:
        yield opened


class Leader:
    def __init__(self, store: Store, clock: FakeClock) -> None:
        self._core = access.core(store)
        self._clock = clock
        self.task = AlertTask(self._core)

    def look(self, seconds: float, *, now: bool = True, end: int | None = None) -> None:
        """Evaluate, after some time; ``end`` is that of the journal, if the engine tells it."""
        self._clock.advance(seconds)
        engine = self._core.engine
        journal_end = None if end is None else {"0": end}
        self.task.evaluate(PollStatus(engine.now(), None, engine.revision(), True, {}, journal_end), now=now)

    def follow(self) -> None:
        follower = Follower(self._core)
        while follower.turn() != 0:
            pass


@pytest.fixture
def leader(store: Store, clock: FakeClock) -> Leader:
    return Leader(store, clock)


def firing(store: Store) -> list[tuple[str, str]]:
    return [(one.alert, one.target) for one in store.alerts.status()]


def test_nothing_is_read_while_nothing_changes(store: Store, leader: Leader, monkeypatch: pytest.MonkeyPatch) -> None:
    store.publish("jobs", 1)
    store.ack(store.claim("jobs")[0])
    engine, reads = access.core(store).engine, []
    stats = engine.stats

    def counted(tenant: str, queue: str | None) -> Any:
        reads.append(tenant)
        return stats(tenant, queue)

    monkeypatch.setattr(engine, "stats", counted)
    for _ in range(20):
        leader.look(10, now=False, end=7)
    assert len(reads) == 1
    leader.look(10, now=False, end=8)
    leader.look(10, now=False, end=9)
    assert len(reads) == 2, "not twice in half a minute"
    leader.look(30, now=False, end=9)
    assert len(reads) == 3
    store.publish("jobs", 1)
    for end in (10, 10, 10):
        leader.look(30, now=False, end=end)
    assert len(reads) == 6, "a message that waits grows older"


def test_other_measures(store: Store, leader: Leader) -> None:
    store.alerts.delete("dead-letters")
    store.alerts.put("stuck", measure="stuck", above=300, queues="slow*")
    store.alerts.put("failing", measure="failed", above=0.5, clear=0.1, within="10m")
    store.alerts.put("behind", measure="lag", above=120)
    store.publish("slow", 1)
    store.claim("slow", lease=3600)
    for _ in range(2):
        leader.look(100)
    assert firing(store) == []
    leader.look(250)
    assert firing(store) == [("behind", "follower:alerts"), ("stuck", "slow")]
    store.publish("slow", 2)
    leader.follow()
    store.publish_many("jobs", range(40))
    for lease in store.claim("jobs", limit=40):
        store.reject(lease) if lease.payload % 4 else store.ack(lease)
    leader.follow()
    leader.look(30)
    assert firing(store) == [("failing", "jobs")]
    store.alerts.delete("failing")
    assert store.followers.list() == [], "nothing is counted any more"


def test_what_is_no_alert_is_refused(store: Store) -> None:
    good: dict[str, Any] = {"measure": "dead", "above": 1}
    for bad in (
        {"measure": "x"}, {"above": -1}, {"above": float("nan")}, {"clear": 2}, {"within": 0}, {"within": "30d"},
        {"lasting": "soon"}, {"queues": ""}, {"notify": "a b"}, {"notify": "_tampu.x"}, {"measure": "failed"},
        {"measure": "lag", "queues": "jobs"},
    ):  # fmt: skip
        with pytest.raises(tampu.TampuError):
            store.alerts.put("a", **{**good, **bad})
    with pytest.raises(tampu.InvalidConfig):
        store.alerts.put("status", **good)
    assert len(store.alerts.list()) == 2


def test_a_new_leader_goes_on_with_what_the_last_one_knew(store: Store, clock: FakeClock) -> None:
    store.alerts.put("growth", measure="dead", above=5, within="1h", queues="jobs")
    store.alerts.put("failing", measure="failed", above=0.4, within="1h", queues="jobs")
    store.alerts.put("stuck", measure="stuck", above=1000, queues="slow")
    store.alerts.put("old", measure="oldest", above=60, lasting=900, queues="late")
    store.publish("slow", 1)
    store.claim("slow", lease=7200)
    store.publish("late", 1)
    first = Leader(store, clock)

    def fail(count: int) -> None:
        store.publish_many("jobs", range(count))
        for lease in store.claim("jobs", limit=count):
            store.reject(lease)

    first.look(0)
    for _ in range(3):
        fail(5)
        first.follow()
        first.look(301)
    access.core(store).attempts.clear()  # a new process counts from the beginning
    second = Leader(store, clock)
    fail(5)
    second.follow()
    second.look(301)
    assert {alert for alert, _ in firing(store)} >= {"growth", "failing", "stuck", "old"}, "no hour has to pass again"
    writes = access.core(store).engine.revision()
    second.look(10, now=False)
    assert access.core(store).engine.revision() == writes, "it is not written all the time"
