"""How many messages of a group are leased at once: `group_concurrency`."""

import contextlib
import random

import pytest

from tampu import Lease, LeaseLost, NewMessage, State
from tampu.broker.store import Store
from tests.conformance.harness import ENDS, Harness, counts, end_first, group, payloads, verbs


@pytest.fixture
def g(store: Store) -> Store:
    store.queues.put("jobs", group_concurrency=2)
    return store


def test_at_most_the_limit_of_a_group_is_leased_and_the_others_wait(g: Store) -> None:
    made = g.publish_many("jobs", group("a", 1, 2, 3, 4, 5))
    assert [m.state for m in made] == ["ready", "ready", "held", "held", "held"]
    assert made[2].reason == "group"
    first, second = g.claim("jobs", limit=10)
    assert g.claim("jobs", limit=10) == []
    g.ack(first)
    (third,) = g.claim("jobs", limit=10)
    assert third.payload == 3
    for lease in (second, third):
        g.ack(lease)
    assert payloads(g.claim("jobs", limit=10)) == [4, 5]


def test_other_groups_and_messages_without_a_group_are_not_limited(g: Store) -> None:
    g.publish_many("jobs", [*group("a", 1, 2, 3), *group("b", 4), NewMessage(5)])
    assert payloads(g.claim("jobs", limit=10)) == [1, 2, 4, 5]


def test_a_batch_of_acks_admits_as_many_messages(g: Store) -> None:
    g.publish_many("jobs", [m for n in range(6) for m in (*group("a", n), *group("b", n))])
    for n in range(3):
        leases = g.claim("jobs", limit=100)
        assert sorted(payloads(leases)) == sorted([2 * n, 2 * n, 2 * n + 1, 2 * n + 1])
        assert counts(g, "jobs").get("held", 0) == 8 - 4 * n
        for lease in leases[1:]:
            g.ack(lease)
        g.ack(leases[0])
    assert counts(g, "jobs") == {"done": 12}


@pytest.mark.parametrize("way", ENDS)
def test_any_end_of_a_message_admits_the_next_in_the_same_commit(g: Store, harness: Harness, way: str) -> None:
    first = g.publish("jobs", "first", group="a", max_attempts=1, ttl=60)
    g.publish("jobs", "second", group="a", delay=0, ttl=90)
    third = g.publish("jobs", "third", group="a")
    assert third.state is State.HELD
    end_first(g, harness, first, way)
    assert g.get(third.id).state is State.READY
    assert verbs(g, third.id) == ["publish", "free"]


@pytest.mark.parametrize("way", ["nack", "release"])
def test_a_retry_that_waits_gives_its_slot_to_the_next(g: Store, harness: Harness, way: str) -> None:
    g.publish_many("jobs", group("a", 1, 2, 3, 4))
    first, second = g.claim("jobs", limit=10)
    getattr(g, way)(first, delay=10)
    (third,) = g.claim("jobs", limit=10)
    assert third.payload == 3
    harness.clock.advance(10)
    harness.sweep()
    assert g.get(first.id).state is State.HELD, "its time has come, and two others are at work"
    assert verbs(g, first.id)[-1] == "promote"
    g.ack(second)
    (again,) = g.claim("jobs", limit=10)
    assert (again.id, again.attempt) == (first.id, 2 if way == "nack" else 1), "before the others that wait"
    g.ack(third)
    assert payloads(g.claim("jobs", limit=10)) == [4]


@pytest.mark.parametrize("way", ["nack now", "release", "run out"])
def test_a_message_that_comes_back_at_once_keeps_its_slot(g: Store, harness: Harness, way: str) -> None:
    g.publish_many("jobs", group("a", 1, 2, 3))
    first, _ = g.claim("jobs", limit=2, lease=600)
    if way == "run out":
        g.extend(first, by=30)
        harness.clock.advance(30)
    elif way == "release":
        g.release(first)
    else:
        g.nack(first, delay=0)
    assert [lease.id for lease in g.claim("jobs", limit=10)] == [first.id]


def test_a_delayed_message_takes_no_slot_until_it_is_due(g: Store, harness: Harness) -> None:
    late = g.publish_many("jobs", [NewMessage(n, group="a", delay=10) for n in range(3)])
    assert {m.state for m in late} == {State.DELAYED}
    soon = g.publish_many("jobs", group("a", "x", "y"))
    assert {m.state for m in soon} == {State.READY}
    leases = g.claim("jobs", limit=10)
    harness.clock.advance(10)
    harness.sweep()
    assert counts(g, "jobs") == {"leased": 2, "held": 3}
    for lease in leases:
        g.ack(lease)
    assert payloads(g.claim("jobs", limit=10)) == [0, 1]


def test_a_message_that_a_person_frees_may_still_wait_for_its_group(g: Store) -> None:
    held = g.publish("jobs", "held", group="a", hold="review")
    g.publish_many("jobs", group("a", 1, 2))
    leases = g.claim("jobs", limit=10)
    assert g.free(held.id)[0].state is State.HELD
    g.ack(leases[0])
    assert payloads(g.claim("jobs", limit=10)) == ["held"]


def test_a_replayed_message_needs_a_slot(g: Store) -> None:
    first = g.publish("jobs", "first", group="a")
    g.reject(g.claim("jobs")[0])
    g.publish_many("jobs", group("a", 1, 2))
    (outcome,) = g.replay("jobs", ids=[first.id]).outcomes
    assert outcome.state is State.HELD


def test_a_higher_limit_admits_more_at_once(g: Store) -> None:
    g.publish_many("jobs", [*group("a", *range(6)), *group("b", *range(6))])
    g.queues.put("jobs", group_concurrency=5)
    assert counts(g, "jobs") == {"ready": 10, "held": 2}
    assert len(g.claim("jobs", limit=100)) == 10


def test_a_lower_limit_counts_as_slots_become_free(g: Store) -> None:
    g.queues.put("jobs", group_concurrency=4)
    g.publish_many("jobs", group("a", *range(8)))
    leases = g.claim("jobs", limit=100)
    g.queues.put("jobs", group_concurrency=1)
    for lease in leases[:3]:
        g.ack(lease)
        assert g.claim("jobs", limit=100) == []
    g.ack(leases[3])
    assert payloads(g.claim("jobs", limit=100)) == [4]


def test_removing_the_limit_admits_all(g: Store) -> None:
    g.publish_many("jobs", group("a", *range(6)))
    g.queues.put("jobs", group_concurrency=0)
    assert payloads(g.claim("jobs", limit=100)) == list(range(6))
    g.publish_many("jobs", group("a", 7, 8))
    assert payloads(g.claim("jobs", limit=100)) == [7, 8]


def test_many_messages_are_admitted_in_small_steps_when_the_limit_is_removed(g: Store) -> None:
    g.publish_many("jobs", group("a", *range(300)))
    g.queues.put("jobs", group_concurrency=0)
    got: list[object] = []
    while leases := g.claim("jobs", limit=1000):
        got += payloads(leases)
        g.ack(leases[0])
    assert got == list(range(300))


def test_the_default_limit_counts_for_new_queues_too(store: Store) -> None:
    store.queues.put("*", group_concurrency=3)
    store.publish_many("fresh", group("a", *range(5)))
    leases = store.claim("fresh", limit=10)
    assert len(leases) == 3
    store.ack(leases[0])
    assert payloads(store.claim("fresh", limit=10)) == [3]


def test_group_order_is_the_stricter_one(store: Store) -> None:
    store.queues.put("jobs", group_concurrency=5, group_order=True)
    store.publish_many("jobs", group("a", 1, 2, 3))
    (lease,) = store.claim("jobs", limit=10)
    store.nack(lease, delay=10)
    assert store.claim("jobs", limit=10) == []


def test_group_order_can_change_to_a_limit_and_back(store: Store, harness: Harness) -> None:
    store.queues.put("jobs", group_order=True)
    store.publish_many("jobs", group("a", *range(5)))
    store.nack(store.claim("jobs")[0], delay=10)
    store.queues.put("jobs", group_order=False, group_concurrency=3)
    assert payloads(store.claim("jobs", limit=10)) == [1, 2], "the retry has kept its place"
    harness.clock.advance(10)
    assert payloads(store.claim("jobs", limit=10)) == [0]
    store.queues.put("jobs", group_order=True)
    store.publish("jobs", 5, group="a")
    assert store.claim("jobs", limit=10) == []


def test_the_limit_survives_a_restart(harness: Harness) -> None:
    store = harness.open()
    store.queues.put("jobs", group_concurrency=2)
    store.publish_many("jobs", group("a", *range(4)))
    leases = store.claim("jobs", limit=10, lease=600)
    store = harness.reopen()
    assert store.claim("jobs", limit=10) == []
    store.ack(leases[0].receipt)
    assert payloads(store.claim("jobs", limit=10)) == [2]


def test_never_more_than_the_limit_whatever_happens(store: Store, harness: Harness, seed: int) -> None:
    chance = random.Random(seed)
    store.queues.put("jobs", group_concurrency=2, max_attempts=3)
    leases: list[Lease] = []
    published = 0
    for _ in range(150):
        step = chance.random()
        if step < 0.3:
            news = [NewMessage(0, group=chance.choice("abc"), delay=chance.choice([None, None, 3])) for _ in range(3)]
            published += len(store.publish_many("jobs", news))
        elif step < 0.6:
            leases += store.claim("jobs", limit=chance.randrange(1, 5), lease=5)
        elif step < 0.9 and leases:
            lease = leases.pop(chance.randrange(len(leases)))
            way = chance.choice(["ack", "nack", "reject", "release"])
            more = {"delay": chance.choice([0, 2])} if way == "nack" else {}
            with contextlib.suppress(LeaseLost):  # it may have run out
                getattr(store, way)(lease, **more)
        else:
            harness.clock.advance(chance.choice([1, 6]))
        now = dict.fromkeys("abc", 0)
        for message in store.messages("jobs", state="leased", limit=1000):
            now[message.group or ""] += 1
        assert max(now.values()) <= 2
    store.queues.put("jobs", max_attempts=1)
    for _ in range(published * 4):
        harness.clock.advance(10)
        harness.sweep()
        for lease in store.claim("jobs", limit=100):
            store.ack(lease)
        if not {"ready", "held", "delayed", "leased"} & counts(store, "jobs").keys():
            break
    assert sum(counts(store, "jobs").values()) == published, "nobody waits for ever"
    assert set(counts(store, "jobs")) <= {"done", "dead"}


def test_each_type_is_a_group_if_the_queue_says_so(store: Store) -> None:
    store.queues.put("jobs", group_by="type", group_concurrency=1)
    store.publish_many("jobs", [NewMessage(n, type=kind) for n in range(2) for kind in ("mail.send", "pdf.render")])
    store.publish_many("jobs", ["plain", "plain too"])
    store.publish("jobs", "of its own", type="mail.send", group="vip")
    leases = store.claim("jobs", limit=10)
    assert [lease.message.group for lease in leases] == ["mail.send", "pdf.render", "message", "vip"]
    store.ack(leases[0])
    (again,) = store.claim("jobs", limit=10)
    assert (again.payload, again.message.type) == (1, "mail.send")
