"""How often a message of a group is claimed: `group_rate`, `group_burst`."""

import contextlib
import itertools
import random

import pytest

from tampu import InvalidConfig, Lease, LeaseLost, Nack, NewMessage, Release, State
from tampu.broker.store import Store
from tests.conformance.harness import Harness, counts, group, payloads, verbs


@pytest.fixture
def g(store: Store) -> Store:
    store.queues.put("jobs", group_rate=0.1)
    return store


def after(harness: Harness, seconds: float) -> None:
    harness.clock.advance(seconds)
    harness.sweep()


def test_the_next_message_of_a_group_is_claimed_when_its_time_has_come(g: Store, harness: Harness) -> None:
    made = g.publish_many("jobs", group("a", 1, 2, 3))
    assert [m.state for m in made] == ["ready", "held", "held"]
    (first,) = g.claim("jobs", limit=10)
    assert [g.get(m.id).state for m in made] == ["leased", "delayed", "held"], "one commit gives the next its time"
    g.ack(first)
    after(harness, 9)
    assert g.claim("jobs", limit=10) == [], "an end gives no token back"
    after(harness, 1)
    assert payloads(g.claim("jobs", limit=10)) == [2]
    after(harness, 10)
    assert payloads(g.claim("jobs", limit=10)) == [3]
    assert verbs(g, made[2].id) == ["publish", "free", "promote", "claim"]


def test_groups_and_messages_without_a_group_do_not_wait_for_each_other(g: Store) -> None:
    g.publish_many("jobs", [*group("a", 1, 2), *group("b", 3), NewMessage(4), NewMessage(5)])
    assert payloads(g.claim("jobs", limit=10)) == [1, 3, 4, 5]


def test_a_quiet_time_saves_up_the_burst_and_no_more(store: Store, harness: Harness) -> None:
    store.queues.put("jobs", group_rate="6/m", group_burst=3)
    store.publish_many("jobs", group("a", *range(9)))
    assert payloads(store.claim("jobs", limit=10, lease=9999)) == [0, 1, 2]
    assert store.claim("jobs", limit=10) == []
    after(harness, 20)
    assert payloads(store.claim("jobs", limit=10, lease=9999)) == [3, 4]
    after(harness, 3600)
    assert payloads(store.claim("jobs", limit=10)) == [5, 6, 7], (
        "an hour without workers is worth no more than the burst"
    )
    assert store.claim("jobs", limit=10) == []
    after(harness, 10)
    assert payloads(store.claim("jobs", limit=10)) == [8]


def test_single_claims_get_no_more_than_one_large_claim(store: Store, harness: Harness) -> None:
    store.queues.put("jobs", group_rate=0.1, group_burst=2)
    store.publish_many("jobs", group("a", *range(6)))
    assert payloads(store.claim("jobs")) == [0]
    harness.clock.advance(5)
    assert payloads(store.claim("jobs")) == [1]
    harness.clock.advance(4)
    assert store.claim("jobs") == []
    harness.clock.advance(1)
    assert payloads(store.claim("jobs", limit=10)) == [2], "no maintenance is needed: claim looks at what is due"
    harness.clock.advance(10)
    assert payloads(store.claim("jobs", limit=10)) == [3]


def test_a_message_published_after_the_token_is_spent_waits_for_the_next(g: Store, harness: Harness) -> None:
    g.publish("jobs", 1, group="a")
    g.ack(g.claim("jobs")[0])
    late = g.publish("jobs", 2, group="a")
    assert (late.state, late.run_at) == (State.DELAYED, g.get(late.id).run_at)
    assert late.run_at is not None
    assert g.publish("jobs", 3, group="a").state is State.HELD
    after(harness, 10)
    assert payloads(g.claim("jobs", limit=10)) == [2]


@pytest.mark.parametrize("way", ["nack now", "release", "run out"])
def test_another_delivery_costs_another_token(g: Store, harness: Harness, way: str) -> None:
    g.publish_many("jobs", group("a", 1, 2))
    (first,) = g.claim("jobs", lease=5)
    if way == "run out":
        after(harness, 5)
    elif way == "release":
        assert g.settle([Release(first)])[0].state is State.DELAYED
    else:
        assert g.settle([Nack(first, delay=0)])[0].state is State.DELAYED
    assert g.get(first.id).state is State.DELAYED
    assert g.claim("jobs", limit=10) == []
    after(harness, 10 if way != "run out" else 5)
    assert payloads(g.claim("jobs", limit=10)) == [2], "whose token it was"
    after(harness, 10)
    (again,) = g.claim("jobs", limit=10)
    assert (again.id, again.attempt) == (first.id, 1 if way == "release" else 2)


def test_a_settle_is_repeatable_while_its_message_waits_for_a_token(g: Store) -> None:
    g.publish("jobs", 1, group="a")
    (lease,) = g.claim("jobs")
    for _ in range(2):
        assert g.settle([Nack(lease, delay=0)])[0].state is State.DELAYED
    with pytest.raises(LeaseLost):
        g.ack(lease)


def test_a_retry_waits_for_its_time_and_then_for_a_token(g: Store, harness: Harness) -> None:
    g.publish_many("jobs", group("a", 1, 2, 3))
    (first,) = g.claim("jobs")
    g.nack(first, delay=12)
    after(harness, 10)
    assert payloads(g.claim("jobs", limit=10)) == [2]
    after(harness, 2)
    assert g.get(first.id).state is State.HELD, "the third has the next token"
    after(harness, 8)
    assert payloads(g.claim("jobs", limit=10)) == [3]
    after(harness, 10)
    assert [lease.id for lease in g.claim("jobs", limit=10)] == [first.id]


@pytest.mark.parametrize("way", ["cancel", "expire", "purge"])
def test_a_message_that_ends_before_its_turn_leaves_its_token_to_the_next(g: Store, harness: Harness, way: str) -> None:
    g.publish("jobs", 1, group="a")
    g.ack(g.claim("jobs")[0])
    second = g.publish("jobs", 2, group="a", ttl=5)
    third = g.publish("jobs", 3, group="a")
    if way == "cancel":
        g.cancel(second.id)
    elif way == "purge":
        assert g.purge("jobs", state="delayed") == 1
    after(harness, 5)
    assert g.get(third.id).state is State.DELAYED
    after(harness, 5)
    assert payloads(g.claim("jobs", limit=10)) == [3]


def test_a_replayed_message_waits_for_a_token(g: Store, harness: Harness) -> None:
    g.publish("jobs", 1, group="a")
    (lease,) = g.claim("jobs")
    g.reject(lease)
    (outcome,) = g.replay("jobs", ids=[lease.id]).outcomes
    assert outcome.state is State.DELAYED
    after(harness, 10)
    assert payloads(g.claim("jobs")) == [1]


def test_with_slots_too_both_limits_count(store: Store, harness: Harness) -> None:
    store.queues.put("jobs", group_rate=0.1, group_burst=3, group_concurrency=2)
    store.publish_many("jobs", group("a", *range(8)))
    first, second = store.claim("jobs", limit=10, lease=600)
    after(harness, 100)
    assert store.claim("jobs", limit=10) == [], "both places are taken"
    store.ack(first)
    (third,) = store.claim("jobs", limit=10, lease=600)
    for lease in (second, third):
        store.ack(lease)
    fourth, fifth = store.claim("jobs", limit=10, lease=600)
    store.ack(fourth)
    store.ack(fifth)
    assert store.claim("jobs", limit=10) == [], "three were saved up"
    after(harness, 10)
    assert payloads(store.claim("jobs", limit=10)) == [5]


def test_the_order_of_a_group_is_kept_at_its_rate(store: Store, harness: Harness) -> None:
    store.queues.put("jobs", group_rate=0.1, group_order=True)
    store.publish_many("jobs", group("a", 1, 2, 3))
    (first,) = store.claim("jobs", limit=10)
    store.nack(first, delay=3)
    after(harness, 3)
    assert store.get(first.id).state is State.DELAYED, "it waits for a token, and nobody overtakes"
    after(harness, 7)
    (again,) = store.claim("jobs", limit=10)
    assert again.id == first.id
    store.ack(again)
    assert store.claim("jobs", limit=10) == []
    for payload in (2, 3):
        after(harness, 10)
        (lease,) = store.claim("jobs", limit=10)
        assert lease.payload == payload
        store.ack(lease)


def test_each_task_has_its_rate_where_types_are_groups(store: Store, harness: Harness) -> None:
    store.queues.put("jobs", group_by="type", group_rate="6/m")
    store.publish_many("jobs", [NewMessage(n, type=kind) for n in range(2) for kind in ("mail.send", "pdf.render")])
    assert [lease.message.type for lease in store.claim("jobs", limit=10)] == ["mail.send", "pdf.render"]
    after(harness, 10)
    assert sorted(lease.message.type for lease in store.claim("jobs", limit=10)) == ["mail.send", "pdf.render"]


def test_a_faster_rate_counts_at_once(store: Store, harness: Harness) -> None:
    store.queues.put("jobs", group_rate="1/h")
    store.publish_many("jobs", group("a", *range(5)))
    assert payloads(store.claim("jobs", limit=10)) == [0]
    store.queues.put("jobs", group_rate=1, group_burst=2)
    assert store.claim("jobs", limit=10) == []
    after(harness, 1)
    assert payloads(store.claim("jobs", limit=10)) == [1]
    after(harness, 10)
    assert payloads(store.claim("jobs", limit=10)) == [2, 3]


def test_a_slower_rate_counts_for_messages_that_are_not_ready_yet(store: Store, harness: Harness) -> None:
    store.queues.put("jobs", group_rate=1, group_burst=2)
    store.publish_many("jobs", group("a", *range(6)))
    assert payloads(store.claim("jobs", limit=10)) == [0, 1]
    store.queues.put("jobs", group_rate="1/m", group_burst=1)
    after(harness, 59)
    assert len(store.claim("jobs", limit=10)) <= 1
    after(harness, 61)
    assert len(store.claim("jobs", limit=10)) == 1


def test_removing_the_rate_admits_all(g: Store, harness: Harness) -> None:
    g.publish_many("jobs", group("a", *range(6)))
    assert payloads(g.claim("jobs", limit=10)) == [0]
    g.queues.put("jobs", group_rate=0)
    harness.sweep()
    assert sorted(payloads(g.claim("jobs", limit=10)), key=str) == [1, 2, 3, 4, 5]
    g.publish_many("jobs", group("a", 7, 8))
    assert payloads(g.claim("jobs", limit=10)) == [7, 8]


def test_the_default_rate_counts_for_new_queues_too(store: Store, harness: Harness) -> None:
    store.queues.put("*", group_rate=0.1)
    store.publish_many("fresh", group("a", 1, 2))
    assert payloads(store.claim("fresh", limit=10)) == [1]
    after(harness, 10)
    assert payloads(store.claim("fresh", limit=10)) == [2]


def test_the_rate_survives_a_restart(harness: Harness) -> None:
    store = harness.open()
    store.queues.put("jobs", group_rate=0.1)
    store.publish_many("jobs", group("a", 1, 2))
    store.claim("jobs", limit=10, lease=600)
    store = harness.reopen()
    assert store.claim("jobs", limit=10) == []
    after(harness, 10)
    assert payloads(store.claim("jobs", limit=10)) == [2]


def test_groups_that_were_quiet_for_long_have_their_full_burst(g: Store, harness: Harness) -> None:
    g.publish_many("jobs", [m for n in range(20) for m in group(f"g{n}", n)])
    for lease in g.claim("jobs", limit=100):
        g.ack(lease)
    after(harness, 86_400 * 2)
    harness.trim()
    g.publish_many("jobs", group("g1", 1, 2))
    assert payloads(g.claim("jobs", limit=10)) == [1]


@pytest.mark.parametrize("limits", [{}, {"group_concurrency": 2}, {"group_order": True}, {"ordering": "fair"}])
def test_never_more_than_the_rate_whatever_happens(
    store: Store, harness: Harness, seed: int, limits: dict[str, object]
) -> None:
    chance = random.Random(seed)
    rate, burst = 0.5, 3
    store.queues.put("jobs", group_rate=rate, group_burst=burst, max_attempts=3, **limits)
    leases: list[Lease] = []
    taken: dict[str, list[float]] = {name: [] for name in "abc"}
    published, now = 0, 0.0
    for _ in range(200):
        step = chance.random()
        if step < 0.25:
            news = [
                NewMessage(0, group=name, delay=chance.choice([None, None, 3]), ttl=chance.choice([None, 20]))
                for name in chance.choices("abc", k=3)
            ]
            published += len(store.publish_many("jobs", news))
        elif step < 0.55:
            got = store.claim("jobs", limit=chance.randrange(1, 6), lease=5)
            for lease in got:
                taken[lease.message.group or ""].append(now)
            leases += got
        elif step < 0.8 and leases:
            lease = leases.pop(chance.randrange(len(leases)))
            way = chance.choice(["ack", "nack", "reject", "release"])
            more = {"delay": chance.choice([0, 2])} if way == "nack" else {}
            with contextlib.suppress(LeaseLost):  # it may have run out
                getattr(store, way)(lease, **more)
        else:
            waits = chance.choice([0.5, 1, 6])
            harness.clock.advance(waits)
            now += waits
    assert sum(len(times) for times in taken.values()) > 20
    for times in taken.values():
        for first, last in itertools.combinations(range(len(times)), 2):
            assert last - first + 1 <= burst + rate * (times[last] - times[first]) + 1e-9
    for _ in range(published * 4):
        harness.clock.advance(10)
        harness.sweep()
        for lease in store.claim("jobs", limit=100):
            store.ack(lease)
        if not {"ready", "held", "delayed", "leased"} & counts(store, "jobs").keys():
            break
    assert sum(counts(store, "jobs").values()) == published, "nobody waits for ever"
    assert set(counts(store, "jobs")) <= {"done", "dead", "expired"}


def test_a_bad_group_rate_is_refused(store: Store) -> None:
    bad: dict[str, list[object]] = {
        "group_rate": [-1, 10_001, "20000/s", "often", True],
        "group_burst": [-1, 1.5, 10_001],
    }
    for name, values in bad.items():
        for value in values:
            with pytest.raises(InvalidConfig):
                store.queues.put("jobs", **{name: value})
