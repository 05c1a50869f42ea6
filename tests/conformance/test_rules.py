"""Rules: what a publish causes happens in its unit, on every engine; a rule that fails changes nothing."""

from __future__ import annotations

from typing import Any

import pytest

import tampu
from tampu.broker.store import Store
from tests.conformance.harness import Harness, counts, payloads

VIP: list[dict[str, Any]] = [{"set": {"priority": 9, "labels": {"vip": "yes"}}}, {"copy": "vip"}]


def test_the_first_rule_that_matches_is_carried_out_in_the_unit_of_the_publish(store: Store) -> None:
    store.queues.put("orders", ordering="priority")
    store.rules.put("vip", queues="orders", when="message.payload.total > 1000", actions=VIP)
    store.rules.put("z-rest", queues="orders", actions=[{"set": {"labels": {"rest": "yes"}}}])
    small, large = store.publish_many("orders", [{"total": 5}, {"total": 2000}])
    assert (small.priority, small.labels) == (0, {"rest": "yes"})
    assert (large.priority, large.labels) == (9, {"vip": "yes"})
    assert payloads(store.claim("orders", limit=2)) == [{"total": 2000}, {"total": 5}]
    (copy,) = store.messages("vip")
    assert (copy.payload, copy.labels, copy.headers["tampu-hops"]) == ({"total": 2000}, {"vip": "yes"}, "1")


def test_rules_go_on_if_they_say_so_and_see_what_was_changed(store: Store) -> None:
    store.rules.put("a", actions=[{"set": {"labels": {"seen": "a"}}}], go_on=True)
    store.rules.put("b", when="message.labels.seen == 'a'", actions=[{"transform": "{'n': message.payload.n + 1}"}])
    store.rules.put("c", actions=[{"set": {"labels": {"seen": "c"}}}])
    message = store.publish("jobs", {"n": 1})
    assert (message.payload, message.labels) == ({"n": 2}, {"seen": "a"})
    store.rules.put("c", actions=[{"set": {"labels": {"seen": "c"}}}], order=-1)
    assert store.publish("jobs", {"n": 1}).labels == {"seen": "c"}
    store.rules.put("c", actions=[{"set": {"labels": {"seen": "c"}}}], order=-1, paused=True)
    assert store.publish("jobs", {"n": 1}).payload == {"n": 2}


def test_a_rule_routes_archives_and_publishes(store: Store) -> None:
    store.rules.put("big", queues="in", when="message.size > 100", actions=[{"route": "large"}])
    store.rules.put("old", queues="in", when="message.type == 'old'", actions=[{"archive": True}])
    reply = {"queue": "replies", "expression": "{'of': message.payload.id}", "type": "reply"}
    store.rules.put("reply", queues="in", when="message.type == 'ask'", actions=[{"publish": reply}])
    assert store.publish("in", "x" * 200).queue == "large"
    archived = store.publish("in", 1, type="old")
    assert archived.state == "cancelled"
    assert store.get(archived.id).state == "cancelled"
    assert store.publish("in", {"id": 7}, type="ask").queue == "in"
    (answer,) = store.claim("replies")
    assert (answer.payload, answer.message.type) == ({"of": 7}, "reply")
    assert counts(store, "in") == {"ready": 1, "cancelled": 1}


def test_rules_of_the_queue_where_it_goes_apply_too_and_a_loop_ends(store: Store) -> None:
    store.rules.put("first", queues="a", actions=[{"route": "b"}])
    store.rules.put("second", queues="b", actions=[{"set": {"labels": {"by": "second"}}}])
    message = store.publish("a", 1)
    assert (message.queue, message.labels) == ("b", {"by": "second"})
    store.rules.put("second", queues="b", actions=[{"route": "a"}])
    lost = store.publish("a", 1)
    assert (lost.state, lost.reason) == ("dead", "routing_loop")
    store.rules.put("first", queues="a", actions=[{"copy": "a"}])
    assert store.publish("a", 2).state == "ready"
    assert counts(store, "a")["ready"] <= 9, "copies of copies end too"


def test_the_same_publish_again_causes_nothing_new(store: Store) -> None:
    store.rules.put("vip", queues="orders", actions=VIP)
    for _ in range(3):
        store.publish("orders", {"n": 1}, idempotency_key="once")
    assert (counts(store, "orders"), counts(store, "vip")) == ({"ready": 1}, {"ready": 1})


def test_a_rule_that_fails_leaves_the_message_where_it_was_going(store: Store) -> None:
    store.rules.put("bad", queues="orders", when="message.payload.total > 1000", actions=[{"route": "vip"}])
    store.rules.put("good", queues="orders", actions=[{"set": {"labels": {"good": "yes"}}}])
    message = store.publish("orders", {"other": 1})
    assert (message.queue, message.labels) == ("orders", {"good": "yes"})
    assert message.headers["tampu-rule-error"].startswith("bad: ")
    assert store.publish("orders", b"\xff", content_type="application/octet-stream").queue == "orders"


def test_an_expression_that_would_take_long_is_not_evaluated(store: Store) -> None:
    store.rules.put(
        "slow", queues="jobs", when="message.payload.map(x, x + 1).size() > 0", actions=[{"route": "other"}]
    )
    assert store.publish("jobs", [1, 2]).queue == "other"
    large = store.publish("jobs", [1] * 2000)
    assert large.queue == "jobs"
    assert "at most 2048 bytes" in large.headers["tampu-rule-error"]
    huge = store.publish("jobs", [1] * 20_000)
    assert huge.queue == "jobs"


def test_if_the_target_refuses_nothing_is_stored(store: Store) -> None:
    store.rules.put("copy", queues="orders", actions=[{"copy": "full"}])
    store.queues.put("full", max_depth=1)
    store.publish("full", 0)
    with pytest.raises(tampu.QueueFull):
        store.publish("orders", 1)
    assert store.queues.list() == ["full"]


def test_a_test_says_what_would_happen_and_why(store: Store) -> None:
    store.rules.put("vip", queues="orders", when="message.payload.total > 1000", actions=VIP)
    yes = store.rules.test("vip", {"total": 2000})
    assert (yes.matched, yes.error) == (True, None)
    assert "message.payload.total = 2000" in yes.why
    assert yes.would[1] == 'copy "vip"'
    no = store.rules.test("vip", {"total": 1})
    assert (no.matched, no.would) == (False, [])
    assert "orders" in store.rules.test("vip", {"total": 2000}, queue="letters").why
    assert store.rules.test("vip", {}).error
    past = store.publish("orders", {"total": 3000})
    assert store.rules.test("vip", id=past.id).matched
    assert counts(store, "vip") == {"ready": 1}
    with pytest.raises(tampu.NotFound):
        store.rules.test("nope", 1)


def test_what_is_no_rule_is_refused(store: Store) -> None:
    act: list[dict[str, Any]] = [{"copy": "x"}]
    inner = "[1].map(a, [2].map(b, a * b)).size() > 0"
    within = "message.payload.all(x, message.payload == x)"
    for bad in ("", "(", "1 +", "x" * 1001, "(" * 30 + "true" + ")" * 30, inner, within):
        with pytest.raises(tampu.InvalidConfig) as error:
            store.rules.put("r", when=bad, actions=act)
        assert error.value.field == "when"
    refused: list[list[dict[str, Any]]] = [
        [], [{}], [{"copy": "x", "route": "y"}], [{"nope": 1}], [{"copy": "a b"}], act * 11, [{"transform": "("}],
        [{"set": {"delay": "soon"}}], [{"copy": "_tampu.audit"}],
    ]  # fmt: skip
    for actions in refused:
        with pytest.raises(tampu.TampuError):
            store.rules.put("r", actions=actions)
    with pytest.raises(tampu.InvalidConfig):
        store.rules.put("r", trigger="dead", actions=[{"set": {"priority": 1}}])
    assert store.rules.list() == []


def test_delays_and_deadlines_are_by_the_clock_of_the_engine(store: Store, harness: Harness) -> None:
    store.rules.put("later", queues="jobs", actions=[{"set": {"delay": "5m", "deadline": 3600}}])
    message = store.publish("jobs", 1)
    assert message.state == "delayed"
    assert message.deadline is not None
    assert (message.deadline - harness.clock.time).total_seconds() == pytest.approx(3600, abs=5)
    harness.clock.advance(301)
    assert len(store.claim("jobs")) == 1


def test_other_tenants_have_their_own(store: Store, harness: Harness) -> None:
    store.rules.put("all", actions=[{"archive": True}])
    other = harness.open(tenant="other")
    assert other.rules.list() == []
    assert other.publish("jobs", 1).state == "ready"


@pytest.mark.parametrize("trigger", ["completed", "failed", "dead", "expired"])
def test_what_happens_later_triggers_rules_once(store: Store, harness: Harness, trigger: Any) -> None:
    store.publish("jobs", {"n": 0})
    store.ack(store.claim("jobs")[0])
    answer = {"queue": "seen", "expression": "[message.payload.n, message.reason, message.attempts]"}
    store.rules.put(
        "later", queues="jobs", trigger=trigger, when="message.payload.n > 0", actions=[{"publish": answer}]
    )
    for n in (1, 2):
        store.publish("jobs", {"n": n}, ttl=60)
    if trigger == "expired":
        harness.clock.advance(61)
        harness.sweep()
    else:
        for lease in store.claim("jobs", limit=2):
            getattr(store, {"completed": "ack", "failed": "nack", "dead": "reject"}[trigger])(lease)
    for _ in range(3):
        harness.follow()
    found = [message.payload for message in store.messages("seen")]
    attempts = 0 if trigger == "expired" else 1
    assert [(n, made) for n, _, made in found] == [(1, attempts), (2, attempts)]
    if trigger == "dead":
        assert found[0][1] == "unrecoverable"


def test_a_rule_that_copies_dead_letters_to_their_own_queue_ends(store: Store, harness: Harness) -> None:
    store.rules.put("again", queues="jobs", trigger="dead", actions=[{"copy": "jobs"}])
    store.publish("jobs", 1)
    for _ in range(12):
        for lease in store.claim("jobs", limit=5):
            store.reject(lease)
        harness.follow()
    assert counts(store, "jobs") == {"dead": 9}


def test_a_webhook_is_one_message_in_the_unit_of_its_cause(store: Store, harness: Harness) -> None:
    hook = {"webhook": {"url": "https://example.org/hook", "headers": {"X-Team": "shop"}}}
    store.queues.put("*", status="open", max_attempts=1, ttl=5)
    store.rules.put("all", actions=[hook])
    store.rules.put("dead", trigger="dead", actions=[hook])
    message, _ = (store.publish("orders", {"n": 1}, idempotency_key="once", priority=3, delay=1) for _ in range(2))
    (call,) = store.messages("_tampu.webhooks")
    assert (call.state, call.priority, call.max_attempts, call.expires_at) == ("ready", 0, 10, None)
    assert (call.payload["url"], call.payload["headers"]) == ("https://example.org/hook", {"X-Team": "shop"})
    assert call.payload["body"]["message"]["payload"] == {"n": 1}
    harness.clock.advance(2)
    store.reject(store.claim("orders")[0])
    for _ in range(3):
        harness.follow()
    calls = [one.payload["body"] for one in store.messages("_tampu.webhooks")]
    assert [one["rule"] for one in calls] == ["all", "dead"]
    assert calls[1]["message"]["id"] == message.id
    assert counts(store, "_tampu.webhooks") == {"ready": 2}
    other = harness.open(tenant="other")
    assert other.queues.list() == []
    for refused in (lambda: store.publish("_tampu.webhooks", 1), lambda: store.claim("_tampu.webhooks")):
        with pytest.raises(tampu.InvalidMessage):
            refused()
