"""What an open store asks of its server when nothing happens: less than two round trips a second.

MariaDB has nothing that rings, so there a thread looks besides, ten times a second; that is not counted here.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any

import pytest

import tampu
from tampu.broker import access, followers
from tampu.broker.commit_queue.waiters import Waiter
from tampu.engines.mariadb import database, wakeup
from tampu.engines.redis import peers
from tampu.engines.sql import engine
from tampu.maintenance import follower, supervisor, tasks
from tampu.model.journal import Transition
from tests.conformance.harness import until
from tests.servers import mariadb, postgres, redis
from tests.servers.round_trips import Counted

STORES: dict[str, Callable[[], str]] = {
    "postgres": postgres.databases.url, "mariadb": mariadb.databases.url, "redis": redis.redis.url,
}  # fmt: skip
MODULES: tuple[ModuleType, ...] = (supervisor, tasks, engine, peers, database)
SECONDS = 120


class Passing:
    """The module `time`, with a clock that the test moves."""

    def __init__(self) -> None:
        self.passed = 0.0

    def monotonic(self) -> float:
        return time.monotonic() + self.passed


@pytest.fixture(params=STORES)
def counted(request: pytest.FixtureRequest) -> Iterator[Counted]:
    with Counted(STORES[request.param]()) as counted:
        yield counted


def _turns(store: tampu.Store, passing: Passing) -> None:
    """Runs the maintenance turns that fall into this many seconds, without waiting."""
    maintenance: Any = access.core(store).maintenance
    slept = 0.0  # without the time that the turns take, which is up to the machine
    while slept < SECONDS:
        pause = maintenance._turn()
        passing.passed += pause
        slept += pause


@pytest.mark.parametrize("leads", [True, False])
def test_an_idle_store_is_asked_less_than_twice_a_second(
    counted: Counted, leads: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    passing = Passing()
    for module in MODULES:
        monkeypatch.setattr(module, "time", passing)
    monkeypatch.setattr(supervisor.Supervisor, "_run", lambda _: None)  # its turns are taken here
    monkeypatch.setattr(wakeup.Wakeup, "_run", lambda _: None)
    with tampu.open(counted.url, maintenance=False) as other, tampu.open(counted.url) as store:
        assert leads or access.engine(other).lead()
        store.publish("jobs", 1, delay=3600)
        access.core(store).waiting.join(Waiter([("default", "emails")], None))
        before, began = counted.trips, passing.monotonic()
        _turns(store, passing)
        seconds = passing.monotonic() - began  # with what the turns took: on a busy machine that is no little
        maintenance = access.core(store).maintenance
        assert maintenance is not None
        assert maintenance.leads is leads
        assert 0.9 * SECONDS < counted.trips - before < 2 * seconds


class Nothing:
    name = "nothing"

    def handle(self, transitions: Sequence[Transition], effects: followers.Effects) -> None:
        """Nothing follows."""


def test_with_a_follower_too_an_idle_store_is_asked_less_than_twice_a_second(
    counted: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    passing = Passing()
    for module in (*MODULES, follower):
        monkeypatch.setattr(module, "time", passing)
    monkeypatch.setattr(supervisor.Supervisor, "_run", lambda _: None)  # its turns are taken here
    monkeypatch.setattr(follower.Follower, "start", lambda _: None)  # and its looks
    monkeypatch.setattr(wakeup.Wakeup, "_run", lambda _: None)
    with followers.registered(Nothing()), tampu.open(counted.url) as store:
        store.publish("jobs", 1, delay=3600)
        maintenance: Any = access.core(store).maintenance
        look, pause = maintenance._follower.step, 0.0
        for _ in range(2):  # the second turn hears of the position that the first looks have stored
            maintenance._turn()
            while (pause := look()) < look():  # it looks less and less often
                pass
        until(lambda: maintenance._scheduler.fire() is None)  # it reads its documents again, but not at once
        before, looks, began = counted.trips, 0, passing.monotonic()
        _turns(store, passing)
        while looks * pause < SECONDS:
            assert look() == pause, "nothing was found of"
            looks += 1
        assert maintenance.leads
        assert 0.9 * SECONDS < counted.trips - before < 2 * (passing.monotonic() - began)


def test_what_another_process_changes_is_looked_at_soon(counted: Counted, monkeypatch: pytest.MonkeyPatch) -> None:
    """PostgreSQL and MariaDB tell of the journal in the same round trip; all tell of documents."""
    monkeypatch.setattr(supervisor.Supervisor, "_run", lambda _: None)
    monkeypatch.setattr(follower.Follower, "start", lambda _: None)
    monkeypatch.setattr(wakeup.Wakeup, "_run", lambda _: None)
    with (
        followers.registered(Nothing()),
        tampu.open(counted.url) as store,
        tampu.open(counted.url, maintenance=False) as other,
    ):
        maintenance: Any = access.core(store).maintenance
        follow = maintenance._follower

        def found() -> bool:
            maintenance._turn()
            return bool(follow._wake.is_set())

        def read_all() -> None:
            while follow.turn() != 0:
                pass
            maintenance._turn()
            follow._wake.clear()
            assert not found()

        other.publish("jobs", 1)
        (lease,) = other.claim("jobs")
        read_all()
        other.ack(lease)
        assert found() is (access.core(store).poll_status().journal_end is not None)
        read_all()
        other.queues.put("jobs", lease=5)
        assert found()


def test_without_a_follower_no_journal_is_read(counted: Counted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor.Supervisor, "_run", lambda _: None)
    monkeypatch.setattr(wakeup.Wakeup, "_run", lambda _: None)
    before = set(threading.enumerate())
    with tampu.open(counted.url) as store:
        maintenance: Any = access.core(store).maintenance
        maintenance._turn()
        assert maintenance.leads
        assert "tampu-follower" not in {thread.name for thread in set(threading.enumerate()) - before}
        trips = counted.trips
        maintenance._follower.step()
        assert counted.trips == trips
