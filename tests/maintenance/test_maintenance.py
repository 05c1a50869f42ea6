"""Maintenance: what it does by itself, when it sleeps, and that it keeps going."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Any

import pytest

import tampu
from tampu.broker import access
from tampu.broker.admin import reorder
from tampu.engines.port import PutDocument
from tampu.maintenance import supervisor as supervisor_module
from tampu.maintenance.tasks import Sweeper, Trimmer
from tampu.model.errors import Unavailable
from tampu.model.times import SECOND
from tests.conformance.harness import FakeClock, until


@pytest.fixture(params=["memory://", "file"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "jobs.db") if request.param == "file" else request.param


def test_maintenance_promotes_reaps_and_expires_by_itself(url: str) -> None:
    with tampu.open(url) as store:
        store.publish("jobs", "leased")
        store.claim("jobs", lease=0.05)
        store.publish("jobs", "delayed", delay=0.05)
        store.publish("jobs", "short", ttl=0.05, hold="x")
        until(lambda: (store.stats("jobs").ready, store.stats("jobs").expired) == (2, 1))


def test_maintenance_notices_sooner_work_while_it_sleeps_for_later_work(url: str) -> None:
    with tampu.open(url) as store:
        store.publish("jobs", "late", delay=3600)
        store.publish("jobs", "soon", delay=0.1)
        until(lambda: store.stats("jobs").ready == 1)


def test_without_maintenance_nothing_moves_by_itself(url: str) -> None:
    clock = FakeClock()
    with tampu.open(url, maintenance=False, clock=clock) as store:
        store.publish("jobs", 1, delay=1)
        clock.advance(60)
        assert store.stats("jobs").delayed == 1
        assert not access.core(store).watched


def test_closing_ends_all_threads(url: str) -> None:
    before = set(threading.enumerate())
    store = tampu.open(url)
    assert "tampu-maintenance" in {t.name for t in set(threading.enumerate()) - before}
    store.close()
    assert set(threading.enumerate()) <= before


def test_an_opening_that_is_refused_leaves_no_thread(url: str) -> None:
    before = set(threading.enumerate())
    with pytest.raises(tampu.InvalidMessage):
        tampu.open(url, tenant="not a name")
    assert set(threading.enumerate()) <= before


def test_sweeper_goes_on_until_nothing_is_due_and_says_what_comes_next(url: str) -> None:
    clock = FakeClock()
    with tampu.open(url, maintenance=False, clock=clock) as store:
        for _ in range(2):
            store.publish_many("jobs", [tampu.NewMessage(n, delay=1) for n in range(700)])
        store.publish("jobs", "later", delay=100)
        sweeper = Sweeper(access.core(store))
        assert sweeper.sweep() == clock.now() + SECOND
        clock.advance(1)
        assert sweeper.sweep() == clock.now() + 99 * SECOND
        assert (store.stats("jobs").ready, store.stats("jobs").delayed) == (1400, 1)
        store.purge("jobs", state=["ready", "delayed"])
        assert sweeper.sweep() is None


def test_sweeper_writes_nothing_when_nothing_is_due(url: str) -> None:
    with tampu.open(url, maintenance=False, clock=FakeClock()) as store:
        store.publish("jobs", 1, delay=1)
        ran: list[Any] = []
        access.core(store).coalescer.submit = ran.append  # type: ignore[method-assign, assignment]  # to see that nothing is asked
        Sweeper(access.core(store)).sweep()
        assert ran == []


def test_trimmer_takes_a_bounded_step_at_a_time(url: str) -> None:
    clock = FakeClock()
    with tampu.open(url, maintenance=False, clock=clock) as store:
        store.queues.put("*", retention=60, idempotency_window=0)
        store.publish_many("jobs", range(1200))
        while leases := store.claim("jobs", limit=50):
            store.settle([tampu.Ack(lease) for lease in leases])
        clock.advance(61)
        trimmer = Trimmer(access.core(store), 10**15)
        steps = []
        while step := trimmer.step():
            steps.append(step)
        assert sum(steps) == 1200
        assert max(steps) <= 600
        assert store.stats("jobs").done == 0


def test_trimmer_rests_between_steps(url: str) -> None:
    with tampu.open(url, maintenance=False) as store:
        trimmer = Trimmer(access.core(store), 10**15)
        assert 0 < trimmer.trim() <= 5
        trimmer._resume = 0.0
        assert trimmer.trim() > 1


def test_maintenance_lives_on_after_an_outage_and_logs_it_once(
    url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A full disk for a moment must not end the maintenance of a process for good."""
    monkeypatch.setattr(supervisor_module, "_RETRY_SECONDS", 0.01)
    with caplog.at_level(logging.WARNING, "tampu.maintenance"), tampu.open(url, maintenance=False) as store:
        supervisor = _stumbling(store, [Unavailable("for a moment")] * 5)
        try:
            until(lambda: "works again" in caplog.text)
            store.publish("jobs", 1, delay=0.01)
            until(lambda: store.stats("jobs").ready == 1)
        finally:
            supervisor.stop()
    said = [record.getMessage() for record in caplog.records]
    assert said == ["maintenance failed, retrying: for a moment", "maintenance works again"]


def _stumbling(store: tampu.Store, faults: list[Exception]) -> supervisor_module.Supervisor:
    """Maintenance whose store fails so often before it serves."""
    core: Any = access.core(store)
    lead, left = core.engine.lead, iter(faults)

    def stumbling() -> bool:
        fault = next(left, None)
        if fault is not None:
            raise fault
        return bool(lead())

    core.engine.lead = stumbling
    return supervisor_module.Supervisor(core, 0)


def test_an_idle_queue_sleeps(url: str) -> None:
    """Nothing due soon: the next look is a second away, however far off the next thing is."""
    with tampu.open(url) as store:
        store.publish("jobs", 1, delay=3600)
        supervisor: Any = access.core(store).on_due.__self__  # type: ignore[attr-defined]  # the method of the supervisor
        assert supervisor._turn() == 1.0


def test_work_due_soon_is_slept_for_exactly(url: str) -> None:
    with tampu.open(url, clock=FakeClock()) as store:
        store.publish("jobs", 1, delay=0.5)
        supervisor: Any = access.core(store).on_due.__self__  # type: ignore[attr-defined]  # the method of the supervisor
        assert supervisor._turn() <= 0.5


def test_maintenance_goes_on_after_a_fault_that_is_not_ours(url: str, caplog: pytest.LogCaptureFixture) -> None:
    with tampu.open(url, maintenance=False) as store:
        supervisor = _stumbling(store, [OSError("no more handles"), ValueError("a fault")])
        try:
            until(lambda: "no more handles" in caplog.text)
            store.publish("jobs", 1, delay=0.01)
            until(lambda: store.stats("jobs").ready == 1)
        finally:
            supervisor.stop()


def test_the_wake_up_thread_goes_on_after_a_look_that_failed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with tampu.open(tmp_path / "jobs.db", maintenance=False) as store:
        core: Any = access.core(store)
        found = threading.Event()

        def failing() -> None:
            raise tampu.StorageError("the disk gave an error")

        core.look, core.on_change = failing, found.set
        for _ in range(2):
            found.clear()
            store.publish("jobs", 1)
            until(found.is_set)


def test_maintenance_finishes_a_change_of_ordering(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reorder, "NOTICED_US", 0)
    with tampu.open(url) as store:
        store.publish_many("jobs", [tampu.NewMessage(n, priority=n) for n in range(5)])
        engine = access.engine(store)
        access.core(store).coalescer.submit(PutDocument("queue", "default", "jobs", b'{"ordering":"priority"}'))
        access.core(store).coalescer.submit(reorder.marking("default", "jobs", engine.now(), ranks=True))
        until(lambda: [m.payload for m in store.messages("jobs")] == [4, 3, 2, 1, 0])
        until(lambda: not reorder.marked(engine))


def test_records_of_the_audit_trail_are_kept_for_400_days(url: str) -> None:
    clock = FakeClock()
    with tampu.open(url, maintenance=False, clock=clock) as store:
        store.queues.put("jobs", lease=5)
        clock.advance(399 * 86_400)
        store.queues.put("jobs", lease=6)
        Trimmer(access.core(store), SECOND).step()
        assert len(store.audit()) == 2
        clock.advance(2 * 86_400)
        Trimmer(access.core(store), SECOND).step()
        assert [record.after["lease"] for record in store.audit()] == [6]


def test_deadlines_of_reviews_end_by_themselves(url: str) -> None:
    with tampu.open(url) as store:
        refused = store.publish("loans", 1, review={"deadline": 1, "on_timeout": "refuse"})
        approved = store.publish("loans", 2, review={"deadline": 1, "on_timeout": "approve"})
        until(lambda: (store.get(refused.id).state, store.get(approved.id).state) == ("dead", "ready"))
