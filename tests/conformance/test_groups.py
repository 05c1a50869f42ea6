"""Held messages: they wait for a person, or for their turn in a group."""

import random

import pytest

from tampu import InvalidState, NewMessage, NotFound, State
from tampu.broker.store import Store
from tests.conformance.harness import ENDS, Harness, counts, end_first, payloads, verbs


def test_a_held_message_is_delivered_when_it_is_freed(store: Store) -> None:
    message = store.publish("emails", 1, hold="review")
    (outcome,) = store.free(message.id)
    assert (outcome.id, outcome.state) == (message.id, State.READY)
    assert verbs(store, message.id) == ["publish", "free"]
    assert counts(store, "emails") == {"ready": 1}
    assert store.claim("emails")[0].attempt == 1


def test_a_held_message_with_a_time_to_come_is_delayed_when_freed(store: Store, harness: Harness) -> None:
    message = store.publish("emails", 1, hold="review", delay=60)
    assert store.free(message.id)[0].state is State.DELAYED
    harness.clock.advance(60)
    assert store.claim("emails")[0].id == message.id


def test_free_answers_for_each(store: Store) -> None:
    held = store.publish("emails", 1, hold="review")
    ready = store.publish("emails", 2)
    unknown = "019b76da-a800-7000-8000-000000000001"
    one, two, three = store.free(held.id, ready.id, unknown)
    assert one.ok
    assert isinstance(two.error, InvalidState)
    assert isinstance(three.error, NotFound)
    assert isinstance(store.free(held.id)[0].error, InvalidState)


def test_a_hold_survives_restarts_and_time(harness: Harness) -> None:
    store = harness.open()
    message = store.publish("emails", 1, hold="review")
    store = harness.reopen()
    harness.clock.advance(365 * 86_400)
    harness.sweep()
    assert (store.get(message.id).state, store.get(message.id).reason) == (State.HELD, "review")


@pytest.fixture
def g(store: Store) -> Store:
    store.queues.put("jobs", group_order=True)
    return store


def test_a_group_is_delivered_one_at_a_time_in_publish_order(g: Store) -> None:
    made = g.publish_many("jobs", [NewMessage(n, group="a") for n in range(4)])
    assert [m.state for m in made] == ["ready", "held", "held", "held"]
    assert made[1].reason == "group"
    for n in range(4):
        leases = g.claim("jobs", limit=10)
        assert payloads(leases) == [n]
        g.ack(leases[0])
    assert counts(g, "jobs") == {"done": 4}


def test_other_groups_and_messages_without_a_group_are_not_delayed(g: Store) -> None:
    for payload, group in [("a1", "a"), ("a2", "a"), ("b1", "b"), ("free 1", None), ("free 2", None)]:
        g.publish("jobs", payload, group=group)
    assert payloads(g.claim("jobs", limit=10)) == ["a1", "b1", "free 1", "free 2"]


@pytest.mark.parametrize("way", ["nack", "nack now", "release", "run out"])
def test_a_failing_message_keeps_its_turn(g: Store, harness: Harness, way: str) -> None:
    g.publish_many("jobs", [NewMessage(n, group="a") for n in range(2)])
    lease = g.claim("jobs", lease=30)[0]
    if way == "release":
        g.release(lease)
    elif way != "run out":
        g.nack(lease, delay=0 if way == "nack now" else 10)
    harness.clock.advance(60)
    (again,) = g.claim("jobs", limit=10)
    assert again.payload == 0
    g.ack(again)
    assert payloads(g.claim("jobs", limit=10)) == [1]


@pytest.mark.parametrize("way", ENDS)
def test_the_next_of_a_group_is_ready_in_the_commit_that_ended_the_one_before(
    g: Store, harness: Harness, way: str
) -> None:
    first = g.publish("jobs", "first", group="a", max_attempts=1, ttl=60)
    second = g.publish("jobs", "second", group="a")
    end_first(g, harness, first, way)
    assert g.get(second.id).state is State.READY
    assert verbs(g, second.id) == ["publish", "free"]
    assert payloads(g.claim("jobs", limit=10)) == ["second"]


def test_a_message_that_waits_for_its_turn_cannot_be_freed_by_hand(g: Store, harness: Harness) -> None:
    _, second = g.publish_many("jobs", [NewMessage(n, group="a") for n in range(2)])
    with harness.unchanged(g):
        assert isinstance(g.free(second.id)[0].error, InvalidState)


def test_a_message_that_waits_for_its_turn_can_be_cancelled(g: Store) -> None:
    _, second, _ = g.publish_many("jobs", [NewMessage(n, group="a") for n in range(3)])
    g.cancel(second.id)
    g.ack(g.claim("jobs")[0])
    assert payloads(g.claim("jobs", limit=10)) == [2]


def test_a_delayed_message_of_a_group_is_waited_for(g: Store, harness: Harness) -> None:
    g.publish("jobs", "first", group="a", delay=60)
    g.publish("jobs", "second", group="a")
    assert g.claim("jobs", limit=10) == []
    harness.clock.advance(60)
    assert payloads(g.claim("jobs", limit=10)) == ["first"]


def test_a_message_waits_for_both_its_hold_and_its_turn(g: Store) -> None:
    held = g.publish("jobs", "held", group="a", hold="review")
    g.publish("jobs", "next", group="a")
    (lease,) = g.claim("jobs", limit=10)
    assert lease.payload == "next"
    assert g.free(held.id)[0].state is State.HELD
    g.ack(lease)
    assert payloads(g.claim("jobs", limit=10)) == ["held"]


def test_a_replayed_message_waits_for_its_turn(g: Store) -> None:
    first = g.publish("jobs", "first", group="a")
    g.publish("jobs", "second", group="a")
    g.reject(g.claim("jobs")[0])
    (outcome,) = g.replay("jobs", ids=[first.id]).outcomes
    assert outcome.state is State.HELD
    g.ack(g.claim("jobs", limit=10)[0])
    assert payloads(g.claim("jobs", limit=10)) == ["first"]


def test_groups_of_one_name_in_two_queues_are_independent(g: Store) -> None:
    g.queues.put("other", group_order=True)
    g.publish("jobs", 1, group="a")
    assert g.publish("other", 2, group="a").state is State.READY


def test_without_group_order_a_group_is_only_a_label(store: Store) -> None:
    store.publish_many("emails", [NewMessage(n, group="a") for n in range(3)])
    assert payloads(store.claim("emails", limit=10)) == [0, 1, 2]


def test_order_within_groups_holds_whatever_happens(g: Store, harness: Harness, seed: int) -> None:
    dice = random.Random(seed)
    g.publish_many("jobs", [NewMessage([group, n], group=group) for n in range(8) for group in "abc"])
    done: dict[str, list[int]] = {"a": [], "b": [], "c": []}
    for _ in range(500):
        leases = g.claim("jobs", limit=dice.randint(1, 5), lease=30)
        assert len({lease.payload[0] for lease in leases}) == len(leases)
        for lease in leases:
            if dice.random() < 0.5:
                g.release(lease)
            else:
                done[lease.payload[0]].append(lease.payload[1])
                g.ack(lease)
        harness.clock.advance(1)
    assert done == {group: list(range(8)) for group in "abc"}
