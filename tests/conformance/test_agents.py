"""Agents: users see, run, pause and resume maintenance tasks and followers, whatever process leads."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import tampu
from tampu.broker.store import Store
from tampu.maintenance import agents
from tampu.maintenance.follower import Follower
from tampu.maintenance.supervisor import Supervisor
from tampu.model.times import SECOND
from tests.conformance.harness import WEEK, Harness, counts, inside

TASKS = ("expiry", "retention", "schedules", "reorder", "replays", "alerts", "webhooks", "timers", "recovery")


@pytest.fixture
def leader(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> Iterator[Supervisor]:
    """Maintenance whose turns are taken by the test."""
    monkeypatch.setattr(Supervisor, "_run", lambda _: None)
    monkeypatch.setattr(Follower, "start", lambda _: None)
    monkeypatch.setattr(agents, "_READ_SECONDS", 0.0)
    monkeypatch.setattr(agents, "_STORE_SECONDS", 0.0)
    made = Supervisor(harness.core(), WEEK * SECOND)
    yield made
    made.stop()


def test_a_paused_task_does_nothing_until_it_is_resumed_and_claims_need_none(
    store: Store, harness: Harness, leader: Supervisor
) -> None:
    assert [(one.name, one.status, one.done, one.last_run_at) for one in store.agents.list()] == [
        (name, "active", 0, None)
        for name in (
            "expiry",
            "retention",
            "schedules",
            "reorder",
            "replays",
            "alerts",
            "webhooks",
            "timers",
            "recovery",
        )
    ]
    store.schedules.put("tick", queue="ticks", payload=1, every=60)
    assert store.agents.pause("expiry").status == "paused"
    assert store.agents.pause("schedules").status == "paused"
    store.publish_many("jobs", [tampu.NewMessage(n, delay=10) for n in range(3)])
    harness.clock.advance(70)
    leader._turn()
    assert (counts(store, "jobs"), store.queues.list()) == ({"delayed": 3}, ["jobs"])
    assert store.agents.get("expiry").late == pytest.approx(60, abs=5)
    assert len(store.claim("jobs", limit=1)) == 1, "a claim makes ready what is due"
    leader.stop()
    successor = Supervisor(harness.core(), WEEK * SECOND)
    successor._turn()
    assert store.queues.list() == ["jobs"], "it stays paused for the next leader"
    store.agents.resume("expiry")
    store.agents.resume("schedules")
    successor._turn()
    successor._turn()
    assert "delayed" not in counts(store, "jobs")
    assert counts(store, "ticks") == {"ready": 1}
    found = store.agents.get("schedules")
    assert (found.status, found.done, found.late) == ("active", 1, None)
    assert (found.leader, found.last_run_at) == (successor._agents._leader, harness.clock.time)
    acts = [(record.action, record.target) for record in store.audit().records]
    actions = [(action, target) for action, target in acts if action.startswith("agent.")]
    assert actions == [(f"agent.{verb}", name) for verb in ("pause", "resume") for name in ("expiry", "schedules")]
    successor.stop()


def test_a_task_runs_when_it_is_asked_to_and_an_idle_one_writes_nothing(
    store: Store, harness: Harness, leader: Supervisor
) -> None:
    store.publish("jobs", 1)
    store.ack(store.claim("jobs")[0])
    harness.clock.advance(WEEK + 1)
    for _ in range(3):
        leader._turn()
    revision = inside(store).engine.revision()
    for _ in range(3):
        leader._turn()
    assert inside(store).engine.revision() == revision
    assert counts(store, "jobs") == {"done": 1}, "it is not time yet"
    asked = store.agents.run("retention")
    assert asked.asked_at is not None
    leader._turn()
    found = store.agents.get("retention")
    assert found.last_run_at is not None
    assert found.last_run_at >= asked.asked_at
    assert counts(store, "jobs") == {}
    assert found.done >= 1
    leader.leads = False
    assert store.agents.get("retention") == found, "other processes read it from the store"
    with pytest.raises(tampu.NotFound):
        store.agents.run("nothing")


def test_a_follower_is_an_agent_and_ends_with_the_last_rule_that_needs_it(
    store: Store, harness: Harness, leader: Supervisor
) -> None:
    other = harness.open(tenant="other")
    for tenant in (store, other):
        tenant.rules.put("dead", trigger="dead", actions=[{"copy": "seen"}])
    (follower,) = [one for one in store.agents.list() if one.kind == "follower"]
    assert (follower.name, follower.status, follower.lag) == ("follower:rules", "active", 0)
    store.agents.pause(follower.name)
    store.publish("jobs", 1)
    store.reject(store.claim("jobs")[0])
    for turn in (leader._turn, leader._follower.turn):
        turn()
    found = store.agents.get(follower.name)
    assert (found.status, found.done, "seen" in store.queues.list()) == ("paused", 0, False)
    assert found.lag
    store.agents.resume(follower.name)
    leader._turn()
    while leader._follower.turn() != 0:
        pass
    assert counts(store, "seen") == {"ready": 1}
    assert store.agents.get(follower.name).done >= 3
    store.rules.delete("dead")
    assert [one.name for one in store.followers.list()] == ["rules"]
    other.rules.put("dead", actions=[{"copy": "seen"}])
    assert store.followers.list() == [], "no rule needs it any more"
    leader._turn()
    assert leader._follower._handlers() == []
    store.rules.put("dead", trigger="dead", actions=[{"copy": "seen"}])
    assert [(one.name, one.behind) for one in store.followers.list()] == [("rules", 0)], "it begins at the end"
