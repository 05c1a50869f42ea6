"""Broadcast queues: each subscription is a queue of its own, and gets what is published once, on every engine."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import tampu
from tampu.broker import recovery
from tampu.broker.policies.subscriptions import fill
from tampu.broker.store import AllVerbs as Verbs
from tampu.broker.store import Store
from tampu.maintenance.recovery import Recovery
from tests.conformance.harness import Harness, counts, payloads


@pytest.fixture
def news(store: Store) -> Store:
    store.queues.put("news", consumer_mode="broadcast", max_attempts=2)
    store.subscriptions.put("news", "all")
    store.subscriptions.put("news", "billing", filter="message.type == 'invoice'")
    return store


def test_each_subscription_gets_what_its_filter_lets_through(news: Store) -> None:
    first, second = news.publish_many("news", [tampu.NewMessage(1, type="invoice"), tampu.NewMessage(2, type="note")])
    assert (first.state, first.queue) == ("done", "news")
    assert news.get(second.id).state == "done"
    assert payloads(news.claim("news@all", limit=9)) == [1, 2]
    assert payloads(news.claim("news@billing", limit=9)) == [1]
    assert news.claim("news") == []
    assert counts(news, "news") == {"done": 2}


def test_each_has_its_own_leases_retries_and_dead_letters(news: Store) -> None:
    news.publish("news", 1, type="invoice")
    (one,), (other,) = news.claim("news@all"), news.claim("news@billing")
    assert one.id != other.id
    assert one.message.max_attempts == 2, "inherited from news"
    news.reject(one, "no")
    news.ack(other)
    assert (counts(news, "news@all"), counts(news, "news@billing")) == ({"dead": 1}, {"done": 1})
    news.queues.put("news@all", max_attempts=7)
    news.publish("news", 2)
    assert news.claim("news@all")[0].message.max_attempts == 7


def test_the_same_publish_again_reaches_nobody_twice(news: Store) -> None:
    for _ in range(3):
        news.publish("news", 1, type="invoice", idempotency_key="once")
    id = "019b76da-a800-4000-8000-000000000001"
    for _ in range(2):
        news.publish("news", 2, id=id)
    assert payloads(news.claim("news@all", limit=9)) == [1, 2]
    assert payloads(news.claim("news@billing", limit=9)) == [1]


def test_a_large_batch_reaches_each_subscription_whole_and_in_order(news: Store) -> None:
    for name in "abcd":
        news.subscriptions.put("news", name)
    news.queues.put("news@d", max_attempts=7)
    sent = news.publish_many("news", range(300))
    assert [message.payload for message in sent] == list(range(300))
    last = news.get(sent[-1].id)
    assert (last.state, last.payload, last.ended_at) == ("done", 299, sent[-1].ended_at)
    assert last.ended_at is not None
    ids = {message.id for message in sent}
    for name in ("all", *"abcd"):
        leases = news.claim(f"news@{name}", limit=400)
        assert payloads(leases) == list(range(300))
        assert {lease.message.max_attempts for lease in leases} == {7 if name == "d" else 2}
        assert news.get(leases[-1].id).payload == 299
        assert news.claim(f"news@{name}") == []
        ids.update(lease.id for lease in leases)
    assert len(ids) == 6 * 300
    assert counts(news, "news") == {"done": 300}
    assert news.claim("news@billing") == []


def test_a_full_subscription_refuses_the_whole_batch(news: Store) -> None:
    news.subscriptions.put("news", "small")
    news.queues.put("news@small", max_depth=3)
    news.publish_many("news", [1, 2])
    with pytest.raises(tampu.QueueFull):
        news.publish_many("news", [3, 4])
    assert payloads(news.claim("news@all", limit=9)) == payloads(news.claim("news@small", limit=9)) == [1, 2]
    assert counts(news, "news") == {"done": 2}


def test_subscriptions_come_and_go_while_it_runs(news: Store) -> None:
    news.publish("news", 1)
    assert news.subscriptions.put("news", "late").own_queue == "news@late"
    assert [one.subscriber for one in news.subscriptions.list("news")] == ["all", "billing", "late"]
    assert news.subscriptions.get("news", "billing").filter == "message.type == 'invoice'"
    assert news.subscriptions.delete("news", "all")
    assert not news.subscriptions.delete("news", "all")
    news.publish("news", 2)
    assert payloads(news.claim("news@late", limit=9)) == [2]
    assert payloads(news.claim("news@all", limit=9)) == [1], "what it has got stays"
    with pytest.raises(tampu.NotFound):
        news.subscriptions.get("news", "all")


def test_a_publish_is_all_or_nothing(news: Store) -> None:
    news.queues.put("news@all", max_depth=1)
    news.publish("news", 1, type="invoice")
    with pytest.raises(tampu.QueueFull):
        news.publish("news", 2, type="invoice")
    assert payloads(news.claim("news@billing", limit=9)) == [1]


def test_what_makes_no_sense_is_refused(news: Store) -> None:
    with pytest.raises(tampu.InvalidMessage) as refused:
        news.publish("news@all", 1)
    assert "publish to news" in (refused.value.hint or "")
    for queue, name in (("a b", "x"), ("news", "a b"), ("news", ""), ("news@all", "x@y"), ("n" * 64, "x")):
        with pytest.raises(tampu.TampuError):
            news.subscriptions.put(queue, name)
    with pytest.raises(tampu.InvalidConfig):
        news.subscriptions.put("news", "x", filter="(")
    assert len(news.subscriptions.list()) == 2


def test_a_filter_that_fails_lets_nothing_through(news: Store) -> None:
    news.subscriptions.put("news", "rich", filter="message.payload.total > 10")
    news.publish_many("news", [{"total": 11}, {"other": 1}, "text"])
    assert payloads(news.claim("news@rich", limit=9)) == [{"total": 11}]


def test_a_shared_queue_ignores_subscriptions(store: Store) -> None:
    store.subscriptions.put("jobs", "all")
    store.publish("jobs", 1)
    assert payloads(store.claim("jobs")) == [1]
    assert store.queues.list() == ["jobs"]


def test_rules_and_schemas_apply_before_it_is_broadcast(news: Store) -> None:
    news.schemas.put("number", {"type": "integer"}, queues="news")
    news.rules.put("double", queues="news", actions=[{"transform": "message.payload * 2"}])
    news.publish("news", 21)
    with pytest.raises(tampu.InvalidMessage):
        news.publish("news", "x")
    assert payloads(news.claim("news@all", limit=9)) == [42]


def test_many_are_settled_by_two_subscriptions_at_once(news: Store, harness: Harness) -> None:
    many, batch = (10_000, 1000) if str(harness.url).endswith(".db") else (300, 100)
    for start in range(0, many, batch):
        news.publish_many("news", [tampu.NewMessage(n, type="invoice") for n in range(start, start + batch)])
    found: dict[str, list[int]] = {"all": [], "billing": []}

    def work(name: str) -> None:
        while leases := news.claim(f"news@{name}", limit=batch // 2):
            found[name] += payloads(leases)
            news.settle([tampu.Ack(lease) for lease in leases])

    threads = [threading.Thread(target=work, args=(name,)) for name in found]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(found["all"]) == sorted(found["billing"]) == list(range(many))
    assert counts(news, "news@all") == counts(news, "news@billing") == {"done": many}


def test_other_tenants_have_their_own(news: Store, harness: Harness) -> None:
    other = harness.open(tenant="other")
    other.queues.put("news", consumer_mode="broadcast")
    other.publish("news", 1)
    assert other.subscriptions.list() == []
    assert news.claim("news@all") == []


def test_a_new_subscription_may_start_in_the_past(
    news: Store, harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fill, "_KNOWN_SECONDS", 0.2)  # all that publishes here is in this process
    news.publish_many("news", [tampu.NewMessage(n, type="invoice" if n % 2 else "note") for n in range(4)])
    harness.clock.advance(60)
    middle = news.publish("news", 4, type="note", idempotency_key="four").created_at
    news.publish("other", "not broadcast")
    stop = threading.Event()

    def publish() -> None:
        sent = 5
        while not stop.is_set() and sent < 60:
            news.publish("news", sent)
            sent += 1

    meanwhile = threading.Thread(target=publish)
    meanwhile.start()
    try:
        assert news.subscriptions.put("news", "late", start="beginning").start == "beginning"
    finally:
        stop.set()
        meanwhile.join(60)
    found = payloads(news.claim("news@late", limit=100))
    assert sorted(found) == list(range(len(found))), "each once"
    assert len(found) == len(payloads(news.claim("news@all", limit=100)))
    assert news.subscriptions.put("news", "late", start="beginning").version == 1, "it is filled already"
    assert news.claim("news@late") == []
    news.subscriptions.put("news", "notes", start=middle, filter="message.type == 'note'")
    assert payloads(news.claim("news@notes", limit=9)) == [4]
    news.publish("news", 100, type="note")
    assert payloads(news.claim("news@notes", limit=9)) == payloads(news.claim("news@late", limit=9)) == [100]
    for start in ("yesterday", "2026-01-01T00:00:00", ""):
        with pytest.raises(tampu.TampuError) as refused:
            news.subscriptions.put("news", "bad", start=start)
        assert getattr(refused.value, "field", None) == "start"
    with pytest.raises(tampu.InvalidConfig, match="cannot be changed"):
        news.subscriptions.put("news", "all", start="beginning")


def test_a_fill_whose_process_dies_at_any_step_is_completed_by_maintenance(
    news: Store, harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By an agent, without the same put again: in each subscription is each message once."""
    monkeypatch.setattr(fill, "_KNOWN_SECONDS", 0.0)
    sent = [message.id for message in news.publish_many("news", range(4))]
    core: Any = harness.core()
    agent, survived = Recovery(core), False
    for step in range(2, 200):
        name = f"s{step}"
        steps = Verbs(core, "default").put_subscription("news", name, start="beginning")
        answer: Any = None
        for _ in range(step):
            try:
                answer = core.do(steps.send(answer))
            except StopIteration:
                survived = True
                break
        steps.close()
        if not any(one.subscriber == name for one in news.subscriptions.list("news")):
            continue  # it died before it had stored anything
        harness.clock.advance(61)
        agent.work()
        assert sorted(payloads(news.claim(f"news@{name}", limit=9))) == list(range(len(sent))), step
        if survived:
            break
    assert survived
    assert recovery.pending(core.engine) == []
    assert agent.work() == 0
