"""Schedules move along: every tick fires in one of the two stores, and once."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

import tampu
from tampu.broker import access
from tampu.broker.schedules import stored
from tampu.maintenance.scheduler import Scheduler
from tests.broker.transfer.stores import ROUND, URLS, move
from tests.conformance.harness import FakeClock

MINUTE = 60


def fire(url: str, clock: FakeClock) -> None:
    """What the maintenance of a store does."""
    with tampu.open(url, clock=clock, maintenance=False) as store:
        Scheduler(access.core(store)).fire()


def ticks(url: str, clock: FakeClock, tenant: str, queue: str) -> list[str]:
    with tampu.open(url, tenant=tenant, clock=clock, maintenance=False) as store:
        if queue not in store.queues.list():
            return []
        return sorted(m.headers[stored.TICK_HEADER][14:16] for m in store.messages(queue, limit=100))


def put(store: tampu.Store, name: str, queue: str, **more: object) -> None:
    store.schedules.put(name, queue=queue, payload=name, every=MINUTE, missed="all(9)", **more)  # type: ignore[arg-type]  # as given


@pytest.mark.parametrize(("old", "new"), ROUND)
def test_schedules_go_on_where_they_were(old: str, new: str, tmp_path: Path) -> None:
    clock = FakeClock()
    source, target = URLS[old](tmp_path), URLS[new](tmp_path)
    with tampu.open(source, clock=clock, maintenance=False) as store:
        put(store, "busy", "jobs")
        put(store, "thrice", "few", limit=3)
        put(store, "asleep", "never", paused=True)
        put(store, "stuck", "shut")
        store.queues.put("shut", status="closed")
    with tampu.open(source, tenant="lonely", clock=clock, maintenance=False) as store:
        put(store, "late", "none-yet", start=clock.time + timedelta(minutes=3))
    for _ in range(2):
        clock.advance(MINUTE)
        fire(source, clock)
    with tampu.open(source, clock=clock, maintenance=False) as store:
        (lease,) = store.claim("jobs")
        store.ack(lease)  # it has ended, and stays behind
        before = store.schedules.list()
    assert [s.error is not None for s in before] == [False, False, True, False], "decided, and not published"
    move(source, target, clock)
    with tampu.open(target, clock=clock, maintenance=False) as store:
        assert store.schedules.list() == before
    clock.advance(MINUTE)
    for url in (source, target, source, target):
        fire(url, clock)
    here = {queue: ticks(source, clock, "default", queue) for queue in ("jobs", "few", "shut", "never")}
    assert here == {"jobs": ["01", "02"], "few": ["01", "02"], "shut": [], "never": []}, "the old store is silent"
    assert ticks(source, clock, "lonely", "none-yet") == []
    there = {queue: ticks(target, clock, "default", queue) for queue in ("jobs", "few", "shut", "never")}
    assert there == {"jobs": ["02", "03"], "few": ["01", "02", "03"], "shut": [], "never": []}
    assert ticks(target, clock, "lonely", "none-yet") == ["03"]
    with tampu.open(target, clock=clock, maintenance=False) as store:
        store.queues.put("shut", status="open")
    clock.advance(MINUTE)
    for _ in range(2):
        fire(target, clock)
    assert ticks(target, clock, "default", "shut") == ["01", "02", "03", "04"]
    assert ticks(target, clock, "default", "few") == ["01", "02", "03"]
