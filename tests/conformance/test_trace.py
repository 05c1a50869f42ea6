"""A trace finds the messages that share a correlation id, on every engine, and a leased message says who holds it."""

from __future__ import annotations

from datetime import timedelta

import pytest

import tampu
from tampu.broker import access
from tests.conformance.harness import Harness


def test_a_trace_is_the_whole_story_across_queues_rules_retries_and_subscriptions(harness: Harness) -> None:
    store = harness.open()
    store.queues.put("news", consumer_mode="broadcast")
    store.subscriptions.put("news", "all")
    store.rules.put("vip", queues="orders", trigger="published", when="message.payload.vip", actions=[{"copy": "vip"}])
    order = store.publish("orders", {"vip": True}, type="order")
    harness.clock.advance(2)
    store.publish("news", "sold", correlation_id=order.id, causation_id=order.id)
    store.publish("orders", {"vip": False}, correlation_id="another")
    (lease, _) = store.claim("orders", limit=2, worker="ada")
    harness.clock.advance(3)
    store.nack(lease, "no stock", delay=0)
    harness.clock.advance(1)
    again = next(one for one in store.claim("orders", worker="bob") if one.id == order.id)
    harness.clock.advance(1)
    store.ack(again)
    (vip,) = store.claim("vip", worker="eve")

    for id in (order.id, vip.id):
        found = store.trace(id)
        assert found.correlation_id == order.id
        assert [(m.queue, m.state, m.cause) for m in found] == [
            ("orders", "done", None), ("vip", "leased", order.id), ("news", "done", order.id),
            ("news@all", "ready", found.messages[2].id),
        ]  # fmt: skip
        root, copied, *_ = found
        assert [(e.what, e.after, e.attempt, e.worker, e.detail) for e in root.events] == [
            ("published", 0, None, None, None), ("nack", 5, 1, "ada", "no stock"), ("done", 2, None, None, None),
        ]  # fmt: skip
        assert (root.duration, root.type, root.attempts) == (timedelta(seconds=7), "order", 2)
        assert [(e.what, e.after, e.worker) for e in copied.events] == [("published", 0, None), ("claimed", 7, "eve")]
        assert (found.complete, found.duration) == (True, None), "one is leased"
    moved = [t for t in store.journal(details=True).transitions if t.queue in ("orders", "vip") and t.verb != "publish"]
    assert {(t.id, t.type, t.correlation_id) for t in moved if t.id in (order.id, vip.id)} == {
        (order.id, "order", None), (vip.id, "order", order.id),
    }  # fmt: skip
    assert all(t.correlation_id is None for t in store.journal().transitions), "only who asks for it pays"
    short = store.trace(order.id, limit=2)
    assert (len(short), short.complete) == (2, False)


def test_a_message_without_options_has_a_story_in_a_broadcast_queue(harness: Harness) -> None:
    store = harness.open()
    store.queues.put("news", consumer_mode="broadcast")
    store.subscriptions.put("news", "all")
    store.subscriptions.put("news", "few", filter="message.payload.n > 1")
    sent = store.publish("news", {"n": 2})
    copies = [*store.claim("news@all"), *store.claim("news@few")]
    for id in (sent.id, *(copy.id for copy in copies)):
        assert {(one.queue, str(one.state)) for one in store.trace(id)} == {
            ("news", "done"), ("news@all", "leased"), ("news@few", "leased"),
        }  # fmt: skip
    store.rules.put("mark", queues="news", actions=[{"set": {"labels": {"a": "b"}}}])
    assert len(store.trace(store.publish("news", {"n": 1}, labels={"c": "d"}).id)) == 2
    assert len(store.trace(store.publish("news", {"n": 3}).id)) == 3
    assert {one.correlation_id for one in store.publish_many("news", [{"n": 2}, {"n": 3}])} == {None}


def test_messages_are_found_by_their_correlation_id_until_they_are_gone(harness: Harness) -> None:
    store, other = harness.open(), harness.open(tenant="other")
    slash = "a/b ü?%"
    made = store.publish_many(
        "jobs",
        [
            tampu.NewMessage(1, correlation_id=slash),
            tampu.NewMessage(2, correlation_id=slash, delay=60),
            tampu.NewMessage(3, correlation_id=slash, hold="x"),
            tampu.NewMessage(4, correlation_id=slash, group="g", id="2f1e9c1e-7d8c-4c55-9a52-4f1a6a1b2c3d"),
            tampu.NewMessage(5, correlation_id=slash, idempotency_key="i", priority=3),
            tampu.NewMessage(6),
        ],
    )
    with store.atomic() as unit:
        unit.publish("more", 7, correlation_id=slash)
    other.publish("jobs", 1, correlation_id=slash)
    assert {m.id for m in store.trace(slash)} >= {m.id for m in made[:5]}
    assert len(store.trace(slash)) == 6
    assert len(other.trace(slash)) == 1, "tenants do not cross"
    assert [m.id for m in store.trace(made[5].id)] == [made[5].id], "a message without a story"

    store.publish("jobs", 8, key="k", correlation_id="first")
    store.publish("jobs", 9, key="k", correlation_id="second")
    assert len(store.trace("second")) == 1
    with pytest.raises(tampu.NotFound):
        store.trace("first")

    store.cancel(made[1].id)
    store.purge("jobs", state="cancelled")
    store.purge("jobs", state="held")
    assert len(store.trace(slash)) == 4
    store.purge("jobs", state="ready")
    assert [m.queue for m in store.trace(slash)] == ["more"]
    for missing in ("nothing", "2f1e9c1e-7d8c-4c55-9a52-4f1a6a1b2c3d"):
        with pytest.raises(tampu.NotFound):
            store.trace(missing)
    for wrong in ("", "x" * 257):
        with pytest.raises(tampu.InvalidMessage):
            store.trace(wrong)


def test_a_leased_message_says_who_holds_it_since_when_and_how_far_that_is(harness: Harness) -> None:
    store = harness.open()
    id = store.publish("jobs", 1).id
    began = harness.clock.now()
    (lease,) = store.claim("jobs", worker="ada", lease=30)

    def seen() -> list[tuple[object, ...]]:
        (listed,) = store.messages("jobs", state="leased")
        return [(m.worker, m.started_us, m.updated_us, m.lease_until_us) for m in (store.get(id), listed)]

    second = 1_000_000
    assert seen() == 2 * [("ada", began, began, began + 30 * second)]
    harness.clock.advance(10)
    store.extend(lease, 30)
    assert seen() == 2 * [("ada", began, began + 10 * second, began + 40 * second)]
    assert store.get(id).progress is None
    verbs = access.verbs(store)
    access.run(store, verbs.write_note(id, lease.receipt, {"progress": 0.25, "note": "reading"}, 30))
    assert store.get(id).progress == tampu.Progress(0.25, "reading")
    store.cancel(id)
    assert store.get(id).worker == "ada", "asked to stop, it still has it"
    store.release(lease)
    after = store.get(id)
    assert (after.worker, after.started_at, after.updated_at, after.lease_until, after.progress) == (None,) * 5
    store.publish("held", 1, hold="for ada")
    (held,) = store.messages("held")
    assert (held.state, held.reason) == ("held", "for ada")
