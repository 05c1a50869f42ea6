"""stats: exact counts after every kind of transition, and the age of the oldest ready message."""

import contextlib
import random
from collections import Counter
from datetime import timedelta

import pytest

from tampu import LeaseLost, NewMessage, NotFound, State
from tampu.broker.store import Store
from tests.conformance.harness import Harness, counts


def test_counts_are_exact_after_each_transition(store: Store, harness: Harness) -> None:
    store.publish_many("emails", [NewMessage(n, max_attempts=2) for n in range(6)])
    assert counts(store, "emails") == {"ready": 6}
    store.publish("emails", 6, delay=100)
    store.publish("emails", 7, hold="x", key="k")
    assert counts(store, "emails") == {"ready": 6, "delayed": 1, "held": 1}
    store.publish("emails", 8, key="k")
    assert counts(store, "emails") == {"ready": 6, "delayed": 1, "held": 1}
    a, b, c, d, e = store.claim("emails", limit=5, lease=50)
    assert counts(store, "emails") == {"ready": 1, "leased": 5, "delayed": 1, "held": 1}
    store.ack(a)
    store.nack(b, delay=20)
    store.reject(c)
    store.release(d)
    store.extend(e, 50)
    assert counts(store, "emails") == {"ready": 2, "leased": 1, "delayed": 2, "held": 1, "done": 1, "dead": 1}
    store.cancel(e.id)
    store.free(store.messages("emails", state="held").messages[0].id)
    assert counts(store, "emails") == {"ready": 3, "leased": 1, "delayed": 2, "done": 1, "dead": 1}
    harness.clock.advance(50)
    harness.sweep()
    assert counts(store, "emails") == {"ready": 4, "delayed": 1, "done": 1, "dead": 1, "cancelled": 1}
    store.replay("emails", where={})
    store.publish("emails", 9, ttl=1)
    harness.clock.advance(1)
    harness.sweep()
    assert counts(store, "emails") == {"ready": 5, "delayed": 1, "done": 1, "cancelled": 1, "expired": 1}
    store.purge("emails", state=["delayed", "done"])
    assert counts(store, "emails") == {"ready": 5, "cancelled": 1, "expired": 1}
    harness.clock.advance(86_401)
    harness.trim()
    assert counts(store, "emails") == {"ready": 5}


def test_counts_agree_with_the_messages_after_a_random_walk(store: Store, harness: Harness, seed: int) -> None:
    dice = random.Random(seed)
    store.queues.put("emails", max_attempts=3)
    leases = []
    for step in range(200):
        roll = dice.random()
        if roll < 0.35:
            store.publish(
                "emails", step, delay=dice.choice([None, 5]), ttl=dice.choice([None, None, 20]),
                hold=dice.choice([None, None, "x"]), key=dice.choice([None, "a", "b"]), max_attempts=2,
            )  # fmt: skip
        elif roll < 0.6:
            leases += store.claim("emails", limit=dice.randint(1, 4), lease=10)
        elif roll < 0.85 and leases:
            lease = leases.pop(dice.randrange(len(leases)))
            with contextlib.suppress(LeaseLost):
                getattr(store, dice.choice(["ack", "nack", "reject", "release"]))(lease)
        elif roll < 0.9:
            store.replay("emails", where={}, limit=2)
        elif roll < 0.95:
            waiting = store.messages("emails", limit=1000).messages
            if waiting:
                store.cancel(dice.choice(waiting).id)
        harness.clock.advance(dice.random() * 4)
        if step % 20 == 0:
            harness.sweep()
            seen = Counter(str(m.state) for m in store.messages("emails", limit=5000))
            assert counts(store, "emails") == dict(seen)


def test_oldest_ready_age_is_the_wait_of_the_oldest_ready_message(store: Store, harness: Harness) -> None:
    assert store.publish("emails", 1).state is State.READY
    harness.clock.advance(10)
    store.publish("emails", 2)
    harness.clock.advance(5)
    assert store.stats("emails").oldest_ready_age == timedelta(seconds=15)
    store.claim("emails")
    assert store.stats("emails").oldest_ready_age == timedelta(seconds=5)
    store.claim("emails")
    assert store.stats("emails").oldest_ready_age is None


def test_oldest_ready_age_is_right_in_every_ordering(store: Store, harness: Harness) -> None:
    store.queues.put("emails", ordering="priority")
    store.publish("emails", "old", priority=0)
    harness.clock.advance(60)
    store.publish("emails", "new", priority=9)
    assert store.stats("emails").oldest_ready_age == timedelta(seconds=60)


def test_stats_of_all_queues_are_by_name(store: Store) -> None:
    store.publish("b", 1)
    store.publish("a", 1)
    store.queues.put("c", max_attempts=2)
    assert [(s.queue, s.ready, s.depth, s.status) for s in store.stats()] == [
        ("a", 1, 1, "open"), ("b", 1, 1, "open"), ("c", 0, 0, "open"),
    ]  # fmt: skip


def test_depth_is_what_has_not_ended(store: Store) -> None:
    store.publish_many("emails", range(5))
    done, dead, _ = store.claim("emails", limit=3)
    store.ack(done)
    store.reject(dead)
    store.publish("emails", 1, delay=5)
    store.publish("emails", 1, hold="x")
    stats = store.stats("emails")
    assert (stats.depth, stats.ready, stats.leased, stats.delayed, stats.held) == (5, 2, 1, 1, 1)


def test_stats_of_a_queue_that_does_not_exist_are_not_found(store: Store) -> None:
    with pytest.raises(NotFound) as missing:
        store.stats("nowhere")
    assert (missing.value.code, missing.value.field) == ("not_found", "queue")
    assert store.stats() == []


def test_counts_survive_opening_again(harness: Harness) -> None:
    store = harness.open()
    store.publish_many("emails", range(9))
    store.ack(store.claim("emails")[0])
    before = store.stats()
    assert harness.reopen().stats() == before
