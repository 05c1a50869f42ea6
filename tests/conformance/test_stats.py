"""stats: exact counts after every kind of transition, and the age of the oldest ready message."""

import contextlib
import random
from collections import Counter
from datetime import timedelta

import pytest

from tampu import LeaseLost, NewMessage, NotFound, State
from tampu.broker.queue import Queue
from tests.conformance.house import House, counts


def test_counts_are_exact_after_each_transition(q: Queue, house: House) -> None:
    q.publish_many("emails", [NewMessage(n, max_attempts=2) for n in range(6)])
    assert counts(q, "emails") == {"ready": 6}
    q.publish("emails", 6, delay=100)
    q.publish("emails", 7, hold="x", key="k")
    assert counts(q, "emails") == {"ready": 6, "delayed": 1, "held": 1}
    q.publish("emails", 8, key="k")
    assert counts(q, "emails") == {"ready": 6, "delayed": 1, "held": 1}
    a, b, c, d, e = q.claim("emails", limit=5, lease=50)
    assert counts(q, "emails") == {"ready": 1, "leased": 5, "delayed": 1, "held": 1}
    q.ack(a)
    q.nack(b, delay=20)
    q.reject(c)
    q.release(d)
    q.extend(e, 50)
    assert counts(q, "emails") == {"ready": 2, "leased": 1, "delayed": 2, "held": 1, "done": 1, "dead": 1}
    q.cancel(e.id)
    q.free(q.messages("emails", state="held").messages[0].id)
    assert counts(q, "emails") == {"ready": 3, "leased": 1, "delayed": 2, "done": 1, "dead": 1}
    house.clock.advance(50)
    house.sweep()
    assert counts(q, "emails") == {"ready": 4, "delayed": 1, "done": 1, "dead": 1, "cancelled": 1}
    q.replay("emails", where={})
    q.publish("emails", 9, ttl=1)
    house.clock.advance(1)
    house.sweep()
    assert counts(q, "emails") == {"ready": 5, "delayed": 1, "done": 1, "cancelled": 1, "expired": 1}
    q.purge("emails", state=["delayed", "done"])
    assert counts(q, "emails") == {"ready": 5, "cancelled": 1, "expired": 1}
    house.clock.advance(86_401)
    house.trim()
    assert counts(q, "emails") == {"ready": 5}


def test_counts_agree_with_the_messages_after_a_random_walk(q: Queue, house: House, seed: int) -> None:
    dice = random.Random(seed)
    q.queues.put("emails", max_attempts=3)
    leases = []
    for step in range(200):
        roll = dice.random()
        if roll < 0.35:
            q.publish(
                "emails", step, delay=dice.choice([None, 5]), ttl=dice.choice([None, None, 20]),
                hold=dice.choice([None, None, "x"]), key=dice.choice([None, "a", "b"]), max_attempts=2,
            )  # fmt: skip
        elif roll < 0.6:
            leases += q.claim("emails", limit=dice.randint(1, 4), lease=10)
        elif roll < 0.85 and leases:
            lease = leases.pop(dice.randrange(len(leases)))
            with contextlib.suppress(LeaseLost):
                getattr(q, dice.choice(["ack", "nack", "reject", "release"]))(lease)
        elif roll < 0.9:
            q.replay("emails", where={}, limit=2)
        elif roll < 0.95:
            waiting = q.messages("emails", limit=1000).messages
            if waiting:
                q.cancel(dice.choice(waiting).id)
        house.clock.advance(dice.random() * 4)
        if step % 20 == 0:
            house.sweep()
            seen = Counter(str(m.state) for m in q.messages("emails", limit=5000))
            assert counts(q, "emails") == dict(seen)


def test_oldest_ready_age_is_the_wait_of_the_oldest_ready_message(q: Queue, house: House) -> None:
    assert q.publish("emails", 1).state is State.READY
    house.clock.advance(10)
    q.publish("emails", 2)
    house.clock.advance(5)
    assert q.stats("emails").oldest_ready_age == timedelta(seconds=15)
    q.claim("emails")
    assert q.stats("emails").oldest_ready_age == timedelta(seconds=5)
    q.claim("emails")
    assert q.stats("emails").oldest_ready_age is None


def test_oldest_ready_age_is_right_whatever_the_ordering(q: Queue, house: House) -> None:
    q.queues.put("emails", ordering="priority")
    q.publish("emails", "old", priority=0)
    house.clock.advance(60)
    q.publish("emails", "new", priority=9)
    assert q.stats("emails").oldest_ready_age == timedelta(seconds=60)


def test_stats_of_all_queues_are_by_name(q: Queue) -> None:
    q.publish("b", 1)
    q.publish("a", 1)
    q.queues.put("c", max_attempts=2)
    assert [(s.queue, s.ready, s.depth, s.status) for s in q.stats()] == [
        ("a", 1, 1, "open"), ("b", 1, 1, "open"), ("c", 0, 0, "open"),
    ]  # fmt: skip


def test_depth_is_what_has_not_ended(q: Queue) -> None:
    q.publish_many("emails", range(5))
    done, dead, _ = q.claim("emails", limit=3)
    q.ack(done)
    q.reject(dead)
    q.publish("emails", 1, delay=5)
    q.publish("emails", 1, hold="x")
    stats = q.stats("emails")
    assert (stats.depth, stats.ready, stats.leased, stats.delayed, stats.held) == (5, 2, 1, 1, 1)


def test_stats_of_a_queue_that_does_not_exist_are_not_found(q: Queue) -> None:
    with pytest.raises(NotFound) as missing:
        q.stats("nowhere")
    assert (missing.value.code, missing.value.field) == ("not_found", "queue")
    assert q.stats() == []


def test_counts_survive_opening_again(house: House) -> None:
    q = house.open()
    q.publish_many("emails", range(9))
    q.ack(q.claim("emails")[0])
    before = q.stats()
    assert house.reopen().stats() == before
