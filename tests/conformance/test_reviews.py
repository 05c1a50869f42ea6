"""Reviews: a message waits until a person has decided, on every engine; one decision counts, whoever dies."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import tampu
from tampu.broker.policies.reviews.decide import DecideVerbs
from tampu.broker.store import AllVerbs, Store
from tampu.engines import port
from tampu.model.audit import Actor
from tests.conformance.harness import Harness, counts, inside, verbs

WANTS = "{{ message.payload.who }} wants {{ message.payload.total }}"
LOAN: dict[str, Any] = {
    "context": [WANTS, {"title": "Limit", "text": "{{ parameters.limit }}"}],
    "fields": {"rate": {"type": "number", "minimum": 0, "required": True}, "note": "text"},
    "roles": ["credit"],
    "parameters": {"limit": 1000},
}  # fmt: skip
ADA = {"total": 500, "who": "ada"}


def test_an_approved_message_continues_with_the_decision_and_a_refused_one_is_dead(store: Store) -> None:
    store.patterns.put("loan", **LOAN)
    store.schemas.put("loan", {"type": "object", "required": ["total"]}, queues="loans")
    first, second, third = (
        store.publish("loans", ADA, review="loan"),
        store.publish("loans", ADA, review={"pattern": "loan", "parameters": {"limit": 7}}),
        store.publish("loans", ADA, review={"options": ["yes", {"name": "no", "outcome": "refuse"}]}),
    )
    assert [(m.state, m.reason) for m in (first, second, third)] == [("held", "review")] * 3
    assert store.claim("loans") == []
    assert [r.id for r in store.reviews.list(role="credit")] == [first.id, second.id, third.id]
    assert [r.id for r in store.reviews.list(role="fraud")] == [third.id], "without roles, everybody may"
    assert [r.id for r in store.reviews.list(pattern="loan", limit=1)] == [first.id]
    page = store.reviews.list(limit=2)
    assert [r.id for r in page] == [first.id, second.id]
    rest = store.reviews.list(after=page.cursor, limit=2)
    assert ([r.id for r in rest], rest.cursor) == ([third.id], None)
    seen = store.reviews.get(second.id)
    assert [(s.title, s.text) for s in seen.sections] == [("", "ada wants 500"), ("Limit", "7")]

    assert store.reviews.claim(first.id, by="bob").assignee == "bob"
    store.reviews.comment(first.id, "looks fine", by="bob")
    with pytest.raises(tampu.InvalidState):
        store.reviews.claim(first.id, by="eve")
    with pytest.raises(tampu.InvalidState):
        store.reviews.decide(first.id, "approve", by="eve", fields={"rate": 2})
    assert store.reviews.reassign(first.id, "eve", by="bob").assignee == "eve"
    for bad in ({}, {"rate": -1}, {"rate": "2"}, {"rate": 2, "x": 1}, {"rate": 2, "note": 5}):
        with pytest.raises(tampu.InvalidMessage):
            store.reviews.decide(first.id, "approve", by="eve", fields=bad)
    with pytest.raises(tampu.InvalidMessage):
        store.reviews.decide(first.id, "approve", by="eve", fields={"rate": 2}, payload={"no": "total"})
    edited = {"total": 400, "who": "ada"}
    done = store.reviews.decide(first.id, "approve", by="eve", reason="fine", fields={"rate": 2}, payload=edited)
    assert done.state == "decided"
    again = store.reviews.decide(first.id, "approve", by="eve", reason="fine", fields={"rate": 2}, payload=edited)
    assert again.decision == done.decision, "a call that is repeated changes nothing"
    (lease,) = store.claim("loans", limit=5)
    assert (lease.id, lease.payload, lease.attempt) == (first.id, edited, 1)
    assert lease.message.review is not None
    decision = lease.message.review.decision
    assert decision is not None
    assert (decision.option, decision.by, decision.reason, decision.fields) == ("approve", "eve", "fine", {"rate": 2})
    assert [c.text for c in store.reviews.get(first.id).comments] == ["looks fine"]

    store.reviews.decide(second.id, "refuse", by="bob", reason="too much")
    store.reviews.decide(third.id, "no", by="bob")
    dead = store.get(second.id)
    assert (dead.state, dead.reason, dead.last_error) == ("dead", "refused", "refuse by bob: too much")
    assert store.get(third.id).state == "dead"
    assert list(store.reviews.list()) == []
    with pytest.raises(tampu.InvalidState, match="decided already"):
        store.reviews.decide(second.id, "approve", by="ada", fields={"rate": 1})
    assert verbs(store, first.id)[:3] == ["publish", "replace", "free"]
    acts = [(r.action, r.target) for r in store.audit().records if r.action.startswith("review.")]
    expected = [f"review.{act}" for act in ("claim", "comment", "reassign", "decide", "decide", "decide")]
    assert acts == list(zip(expected, [first.id] * 4 + [second.id, third.id], strict=True))


def test_of_two_reviewers_at_once_one_decides_and_several_must_approve(store: Store) -> None:
    store.patterns.put("two", approvals=2)
    for number in range(3):
        message = store.publish("loans", {"n": number}, review={"options": ["approve", "refuse"]})
        gate = threading.Barrier(2)
        outcomes: list[Any] = []

        def decide(person: str, option: str, id: str = message.id, gate: Any = gate, outcomes: Any = outcomes) -> None:
            gate.wait()
            try:
                outcomes.append(store.reviews.decide(id, option, by=person).decision)
            except tampu.InvalidState as error:
                outcomes.append(error)

        people = [threading.Thread(target=decide, args=one) for one in (("ada", "approve"), ("bob", "refuse"))]
        for person in people:
            person.start()
        for person in people:
            person.join()
        (won,) = [one for one in outcomes if isinstance(one, tampu.Decision)]
        assert store.get(message.id).state == ("ready" if won.option == "approve" else "dead")
        assert [r.after["by"] for r in store.audit(action="review.decide", target=message.id).records] == [won.by]

    message = store.publish("both", 1, review="two")
    assert store.reviews.decide(message.id, "approve", by="ada").state == "open"
    assert store.reviews.decide(message.id, "approve", by="ada").state == "open", "one person is one vote"
    with pytest.raises(tampu.InvalidState):
        store.reviews.decide(message.id, "refuse", by="ada")
    assert store.get(message.id).state == "held"
    assert store.reviews.decide(message.id, "approve", by="bob").state == "decided"
    assert store.get(message.id).state == "ready"


def test_reminder_escalation_and_deadline_come_in_time_and_once(store: Store, harness: Harness) -> None:
    escalate = {"after": "2h", "roles": ["boss"]}
    store.patterns.put(
        "loan", roles=["credit"], remind="1h", escalate=escalate, deadline="4h", on_timeout="refuse", notify="mails"
    )
    late = store.publish("loans", 1, review="loan")
    done = store.publish("loans", 2, review={"deadline": 60, "on_timeout": "approve"})
    harness.ring()
    assert counts(store, "loans") == {"held": 2}
    harness.clock.advance(61)
    harness.ring()
    freed = store.get(done.id)
    assert freed.state == "ready"
    assert freed.review is not None
    assert freed.review.decision is not None
    assert (freed.review.decision.option, freed.review.decision.by) == ("approve", "tampu")
    store.reviews.claim(late.id, by="ada")
    for hours, events in ((1, ["remind"]), (2, ["remind", "escalate"]), (3, ["remind", "escalate"])):
        harness.clock.advance(3600)
        for _ in range(2):
            harness.ring()
        assert [m.payload["event"] for m in store.messages("mails")] == events, hours
    assert list(store.reviews.list(role="credit")) == []
    (now,) = store.reviews.list(role="boss")
    assert (now.id, now.assignee, now.escalated) == (late.id, None, True)
    harness.clock.advance(3600)
    for _ in range(2):
        harness.ring()
    assert (store.get(late.id).state, store.get(late.id).reason) == ("dead", "refused")
    assert [m.payload["event"] for m in store.messages("mails")] == ["remind", "escalate", "timeout"]
    assert [r.actor for r in store.audit(action="review.decide").records] == ["tampu", "tampu"]
    store.purge("loans", state=["dead", "ready"])
    harness.clock.advance(8 * 86_400)
    for _ in range(2):
        harness.ring()
    assert inside(store).engine.documents("review", "default") == [], "what is stored of a review goes with its message"


def test_a_process_that_dies_after_a_decision_leaves_nothing_half_done(
    store: Store, harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    approved, refused = store.publish("a", 1, review={}), store.publish("b", 2, review={})

    def dies(*_: Any) -> Any:
        raise tampu.Unavailable("killed")

    with monkeypatch.context() as patch:
        patch.setattr(DecideVerbs, "carry_out", dies)
        for message, option in ((approved, "approve"), (refused, "refuse")):
            try:
                store.reviews.decide(message.id, option, by="ada", payload={"n": 5} if option == "approve" else None)
            except tampu.Unavailable:
                assert store.get(message.id).state == "held"
                with pytest.raises(tampu.InvalidState, match="decided"):
                    store.reviews.decide(message.id, "refuse" if option == "approve" else "approve", by="bob")
    harness.clock.advance(5)
    for _ in range(2):
        harness.ring()
    assert [store.get(m.id).state for m in (approved, refused)] == ["ready", "dead"]
    (lease,) = store.claim("a")
    assert lease.payload == {"n": 5}


@pytest.mark.parametrize("option", ["approve", "refuse"])
def test_who_decides_and_stalls_changes_no_later_review(store: Store, harness: Harness, option: str) -> None:
    """Where a decision and its effect are two commits, the second may come when another review has begun."""
    message, core = store.publish("a", 1, review={}), harness.core()
    stalled: list[Any] = []

    def do(step: Any) -> Any:
        if isinstance(step, port.Free | port.Cancel) and not stalled:
            stalled.append(step)
            harness.clock.advance(5)
            harness.ring()  # maintenance does what was decided
            if option == "refuse":
                store.replay("a", ids=[message.id])
            (lease,) = store.claim("a")
            store.reviews.ask(lease, {})
        return core.do(step)

    steps = AllVerbs(core, "default").by(Actor("ada")).decide_review(message.id, option)
    core.drive(steps, do)
    assert bool(stalled) == ("atomic:eventual" in core.engine.capabilities)
    if stalled:
        held = store.get(message.id)
        assert (held.state, held.reason) == ("held", "review 2")
        assert [one.id for one in store.reviews.list()] == [message.id]
        store.reviews.decide(message.id, "refuse", by="bob")
        assert store.get(message.id).last_error == "refuse by bob"


def test_a_worker_asks_in_the_middle_of_its_work(store: Store, harness: Harness) -> None:
    store.patterns.put("loan", **LOAN)
    message = store.publish("jobs", ADA, max_attempts=1)
    (lease,) = store.claim("jobs")
    store.reviews.ask(lease, {"pattern": "loan", "parameters": {"limit": 3}}, reason="too large")
    with pytest.raises(tampu.LeaseLost):
        store.reviews.ask(lease, "loan")
    with pytest.raises(tampu.LeaseLost):
        store.ack(lease)
    held = store.get(message.id)
    assert (held.state, held.attempts, held.reason) == ("held", 0, "review")
    (seen,) = store.reviews.list()
    assert (seen.id, seen.reason) == (message.id, "too large")
    store.reviews.decide(message.id, "approve", by="ada", fields={"rate": 1})
    (lease,) = store.claim("jobs")
    assert lease.attempt == 1
    store.reviews.ask(lease, {"deadline": 30})
    assert store.reviews.get(message.id).decision is None, "it is another review"
    harness.clock.advance(31)
    harness.ring()
    assert (store.get(message.id).state, store.get(message.id).reason) == ("dead", "refused")
    with pytest.raises(tampu.InvalidMessage):
        store.reviews.ask(lease, "no-such-pattern")


def test_rules_are_triggered_by_decisions_once(store: Store, harness: Harness) -> None:
    reply = {"queue": "seen", "expression": "[message.review.outcome, message.payload]"}
    store.rules.put("after", queues="loans", trigger="reviewed", actions=[{"publish": reply}])
    yes, no, free = (store.publish("loans", n, review={}) for n in (1, 2, 3))
    store.reviews.decide(yes.id, "approve", by="ada")
    store.reviews.decide(no.id, "refuse", by="ada")
    store.free(free.id)
    for _ in range(2):
        harness.follow()
    assert [m.payload for m in store.messages("seen")] == [["approve", 1], ["refuse", 2]]


def test_the_same_publish_again_is_one_review_and_copies_have_none(store: Store, harness: Harness) -> None:
    store.patterns.put("loan", deadline=60)
    store.rules.put("copy", queues="loans", actions=[{"copy": "seen"}])
    first, _ = (store.publish("loans", 1, review="loan", idempotency_key="once") for _ in range(2))
    assert (counts(store, "loans"), counts(store, "seen")) == ({"held": 1}, {"ready": 1})
    assert store.reviews.get(first.id).state == "open"
    with pytest.raises(tampu.IdempotencyConflict):
        store.publish("loans", 1, review={}, idempotency_key="once")
    harness.clock.advance(61)
    for _ in range(2):
        harness.ring()
    assert store.get(first.id).reason == "refused"
    other = harness.open(tenant="other")
    waits = store.publish("loans", 1, review="loan")
    assert (list(other.reviews.list()), other.patterns.list(), other.queues.list()) == ([], [], [])
    for act in (other.reviews.get, other.reviews.claim):
        with pytest.raises(tampu.NotFound):
            act(waits.id)
    with pytest.raises(tampu.InvalidMessage):
        other.publish("loans", 1, review="loan")
    store.cancel(waits.id)
    assert list(store.reviews.list()) == []
    with pytest.raises(tampu.InvalidState):
        store.reviews.decide(waits.id, "approve", by="ada")
