"""Alerts: they fire once, end once, and notify once for each change, whatever process leads."""

from __future__ import annotations

from typing import Any

import pytest

from tampu.broker.store import Store
from tampu.engines.port import PollStatus
from tampu.maintenance.alerts import AlertTask
from tests.conformance.harness import Harness, inside


class Leader:
    """Evaluates alerts whenever the test says so."""

    def __init__(self, harness: Harness) -> None:
        self._harness = harness
        self.task = AlertTask(harness.core())

    def look(self, seconds: float = 0) -> None:
        """Evaluate, after some time."""
        self._harness.clock.advance(seconds)
        engine = self._harness.core().engine
        self.task.evaluate(PollStatus(engine.now(), None, engine.revision(), True, {}), now=True)


@pytest.fixture
def leader(harness: Harness) -> Leader:
    return Leader(harness)


def kill(store: Store, count: int, queue: str = "jobs") -> None:
    store.publish_many(queue, range(count))
    leases = store.claim(queue, limit=count)
    for lease in leases:
        store.reject(lease)


def events(store: Store, queue: str = "pager") -> list[Any]:
    return [message.payload for message in store.messages(queue, limit=100)] if queue in store.queues.list() else []


def firing(store: Store) -> list[tuple[str, str]]:
    return [(one.alert, one.target) for one in store.alerts.status()]


def test_growth_of_dead_letters_is_warned_of_unasked_and_once(
    store: Store, harness: Harness, leader: Leader, caplog: pytest.LogCaptureFixture
) -> None:
    other = harness.open(tenant="other")
    kill(other, 1)
    assert [alert.name for alert in store.alerts.list()] == ["dead-letters", "old-messages"]
    kill(store, 15)
    leader.look()
    leader.look(30)
    assert firing(store) == [], "they were there before"
    kill(store, 8)
    leader.look(30)
    assert firing(store) == []
    kill(store, 8)
    for _ in range(3):
        leader.look(30)
        kill(store, 1)
    assert firing(store) == [("dead-letters", "jobs")]
    assert caplog.text.count("alert dead-letters of tenant default: dead of jobs is") == 1
    successor = Leader(harness)
    for _ in range(3):
        successor.look(600)
    assert firing(store) == [("dead-letters", "jobs")], "it knows too little to end it"
    successor.look(3600)
    successor.look(30)
    assert firing(store) == []
    records = [(one.action, one.target, one.actor) for one in store.audit(target="dead-letters").records]
    assert records == [("alert.fire", "dead-letters", "tampu"), ("alert.end", "dead-letters", "tampu")]
    assert firing(other) == []
    assert store.alerts.delete("dead-letters")
    assert not store.alerts.delete("dead-letters")
    assert [alert.name for alert in store.alerts.list()] == ["old-messages"]
    kill(store, 30)
    successor.look(30)
    assert firing(store) == []
    assert [alert.name for alert in other.alerts.list()] == ["dead-letters", "old-messages"]


def test_a_change_is_notified_of_once_however_often_the_process_dies(
    store: Store, harness: Harness, leader: Leader, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("dead-letters", "old-messages"):
        store.alerts.delete(name)
    store.alerts.put("old", measure="oldest", above=60, clear=10, lasting="1m", queues="jobs", notify="pager")
    store.publish("jobs", 1)
    store.publish("late", 1)
    leader.look(70)
    leader.look(30)
    assert events(store) == [], "it must last"

    class Died(BaseException):
        pass

    core, done = inside(store), []
    drive = core.drive

    def dying(steps: Any, *rest: Any) -> Any:
        done.append(drive(steps, *rest))
        raise Died

    monkeypatch.setattr(core, "drive", dying)
    with pytest.raises(Died):
        leader.look(30)
    monkeypatch.undo()
    assert len(done) == 1
    for _ in range(3):
        Leader(harness).look(30)
    (event,) = events(store)
    assert (event["alert"], event["measure"], event["above"], event["firing"]) == ("old", "oldest", 60, 1)
    assert [one["target"] for one in event["fired"]] == ["jobs"]
    assert event["ended"] == []
    (lease,) = store.claim("jobs")
    store.ack(lease)
    Leader(harness).look()
    assert [one["target"] for one in events(store)[1]["ended"]] == ["jobs"]
    store.queues.put("pager", max_depth=1)
    store.publish("jobs", 1)
    last = Leader(harness)
    last.look(100)
    last.look(60)
    assert firing(store) == [("old", "jobs")], "a queue that is full does not keep it from firing"
    assert len(events(store)) == 2
    store.alerts.put("old", measure="oldest", above=60, queues="jobs", paused=True)
    last.look()
    assert firing(store) == []
