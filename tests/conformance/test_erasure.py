"""Erasure removes all messages of a subject, in every state, and reports it; legal holds prevent it."""

from __future__ import annotations

import pytest

import tampu
from tampu.broker.store import Store
from tampu.maintenance.recovery import Recovery
from tests.conformance.harness import Harness, counts

USER = {"user": "42"}


def fill(store: Store) -> dict[str, tampu.Message]:
    """A message of the subject in each state, and one of somebody else."""
    store.queues.put("jobs", max_attempts=1)
    claimed = store.publish_many("jobs", [tampu.NewMessage(n, labels=USER) for n in ("done", "dead", "leased")])
    done, dead, _ = store.claim("jobs", limit=3, lease=3600)
    store.ack(done, result={"name": "Ada"})
    store.nack(dead, "Ada is not here")
    found = {str(message.payload): message for message in claimed}
    found["ready"] = store.publish("jobs", "ready", labels=USER)
    found["delayed"] = store.publish("mails", "delayed", labels=USER, delay=60)
    found["held"] = store.publish("mails", "held", labels=USER, hold="wait")
    found["cancelled"] = store.publish("mails", "cancelled", labels=USER)
    store.cancel(found["cancelled"].id)
    found["other"] = store.publish("mails", "other", labels={"user": "43"})
    return found


def test_all_messages_of_a_subject_are_removed_and_reported(store: Store, harness: Harness) -> None:
    messages = fill(store)
    gone = {state: one.id for state, one in messages.items() if state not in ("leased", "other")}
    preview = store.erase(label=("user", "42"), dry_run=True)
    assert (set(preview.ids), preview.leased, preview.dry_run) == (set(gone.values()), [messages["leased"].id], True)
    assert store.erasures.list() == []
    report = store.erase(label=("user", "42"))
    assert report.removed == {
        "jobs": {"done": 1, "dead": 1, "ready": 1}, "mails": {"delayed": 1, "held": 1, "cancelled": 1},
    }  # fmt: skip
    assert set(report.ids) == set(gone.values())
    assert (report.status, report.leased) == ("waiting", [messages["leased"].id])
    for id in gone.values():
        with pytest.raises(tampu.NotFound):
            store.get(id)
    assert (counts(store, "jobs"), counts(store, "mails")) == ({"leased": 1}, {"ready": 1})
    assert store.get(messages["leased"].id).cancel_requested

    store.publish("mails", "once more", labels=USER)  # after it was looked at: the erasure goes on with it too
    core = harness.core()
    recovery = Recovery(core)
    assert recovery.work() == 0, "somebody worked on it a moment ago"
    harness.clock.advance(3700)
    harness.sweep()
    assert recovery.work() == 1
    report = store.erasures.get(report.id)
    assert (report.status, report.leased, len(report.ids)) == ("done", [], 8)
    assert recovery.work() == 0
    left = store.erasures.check(report.id)
    assert (left.ids, left.leased, left.held) == ([], [], {})
    assert store.erasures.list() == [report]
    actions = [record.action for record in store.audit(target=report.id).records]
    assert actions == ["erasure.begin", "erasure.end"]
    with harness.open(tenant="other") as other:
        assert other.erasures.list() == []
        assert other.erase(label=("user", "42")).ids == []


def test_a_legal_hold_keeps_what_it_covers(store: Store, harness: Harness) -> None:
    store.queues.put("*", retention=60)
    covered, free, other = (
        store.publish("jobs", n, labels=USER, key=f"k{n}", correlation_id="c", hold="x") for n in range(3)
    )
    ended = store.publish("mails", {"users": [{"id": 42}]})
    store.cancel(ended.id)
    store.holds.put("case-7", reason="court", labels=USER, key="k0", queues="jobs")
    assert store.erase(key="k0").held == {"case-7": [covered.id]}
    report = store.erase(correlation_id="c")
    assert (set(report.ids), report.held) == ({free.id, other.id}, {"case-7": [covered.id]})
    assert report.status == "done"
    more = store.publish("jobs", 4, hold="x")
    assert store.purge("jobs", state="held") == 1
    with pytest.raises(tampu.NotFound):
        store.get(more.id)
    assert store.get(covered.id).state == "held"
    with pytest.raises(tampu.InvalidState, match="legal hold case-7: court"):
        store.queues.remove("jobs", force=True)

    store.queues.put("mails", max_dead=1, dead_retention=60)
    doomed = store.publish_many("mails", [tampu.NewMessage(n, delay=60) for n in range(2)])
    harness.clock.advance(61)
    for lease in store.claim("mails", limit=2):
        store.reject(lease)
    store.holds.put("all-mails", reason="court", queues="mail*")
    assert store.dead.purge([message.id for message in doomed]).count == 0
    with pytest.raises(tampu.InvalidState, match="all-mails"):
        store.purge("mails", state="cancelled")
    harness.clock.advance(3600)
    harness.trim()
    assert store.get(ended.id).state == "cancelled", "retention is off"
    assert [store.get(message.id).state for message in doomed] == ["dead", "dead"]
    assert store.erase(path=("payload.users.id", "42")).held == {"all-mails": [ended.id]}
    assert store.holds.delete("all-mails")
    assert store.erase(path=("payload.users.id", "42")).ids == [ended.id]
    assert [hold.name for hold in store.holds.list()] == ["case-7"]
    for wrong in ({}, {"key": "a", "correlation_id": "b"}, {"path": ("user.id", "1")}, {"label": "user"}):
        with pytest.raises(tampu.InvalidMessage):
            store.erase(**wrong)


def test_a_legal_hold_keeps_results_past_their_time(store: Store, harness: Harness) -> None:
    store.queues.put("*", result_ttl=60, retention=7200)
    ids = [message.id for queue in ("jobs", "mails") for message in [store.publish(queue, 1)]]
    for queue in ("jobs", "mails"):
        store.settle([tampu.Ack(lease, result={"n": 1}) for lease in store.claim(queue)])
    store.holds.put("case-7", reason="court", queues="jobs")
    harness.clock.advance(3600)
    for _ in range(2):
        harness.trim()
    assert [store.get(id).result for id in ids] == [{"n": 1}, None]
    assert store.result(ids[0]).result == {"n": 1}
    store.holds.delete("case-7")
    assert store.get(ids[0]).result is None
    harness.trim()
    store.holds.put("case-8", reason="court", queues="jobs")
    assert store.get(ids[0]).result is None, "it was removed when no hold was for it"


def test_schedules_that_would_publish_for_the_subject_are_deleted(store: Store) -> None:
    store.schedules.put("hers", queue="mails", payload={"to": "ada"}, labels=USER, every=3600)
    store.schedules.put("kept", queue="court", payload={"to": "ada"}, labels=USER, every=3600)
    store.schedules.put("his", queue="mails", payload={"to": "bob"}, labels={"user": "43"}, every=3600)
    store.holds.put("case-7", reason="court", queues="court")
    preview = store.erase(label=("user", "42"), dry_run=True)
    report = store.erase(label=("user", "42"))
    for one in (preview, report, store.erasures.get(report.id)):
        assert (one.schedules, one.held) == (["hers"], {"case-7": ["schedule kept"]})
    assert [one.name for one in store.schedules.list()] == ["his", "kept"]
    assert store.erasures.check(report.id).schedules == []
