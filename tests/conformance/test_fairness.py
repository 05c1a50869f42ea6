"""Groups take turns: `ordering="fair"`."""

from collections import Counter

import pytest

from tampu import Ack, NewMessage, State
from tampu.broker.store import Store
from tests.conformance.harness import Harness, counts, group, payloads


@pytest.fixture
def f(store: Store) -> Store:
    store.queues.put("jobs", ordering="fair")
    return store


def drain(store: Store, limit: int = 1) -> list[object]:
    """What the queue delivers, claim after claim."""
    got: list[object] = []
    while leases := store.claim("jobs", limit=limit):
        got += payloads(leases)
        store.settle([Ack(lease) for lease in leases])
    return got


def test_groups_take_turns_and_each_keeps_its_order(f: Store) -> None:
    f.publish_many("jobs", group("a", "a1", "a2", "a3"))
    f.publish_many("jobs", group("b", "b1", "b2"))
    f.publish("jobs", "c1", group="c")
    assert drain(f) == ["a1", "b1", "c1", "a2", "b2", "a3"]


def test_a_large_backlog_of_one_group_does_not_delay_another(f: Store) -> None:
    for start in range(0, 10_000, 1000):
        f.publish_many("jobs", group("big", *range(start, start + 1000)))
    f.settle([Ack(lease) for lease in f.claim("jobs", limit=100)])
    f.publish_many("jobs", group("small", *(f"s{n}" for n in range(10))))
    first = payloads(f.claim("jobs", limit=21))
    assert [p for p in first if isinstance(p, str)] == [f"s{n}" for n in range(10)]
    assert [p for p in first if isinstance(p, int)] == list(range(100, 111))


def test_a_new_group_begins_in_the_current_round(f: Store) -> None:
    f.publish_many("jobs", group("a", *range(10)))
    f.settle([Ack(lease) for lease in f.claim("jobs", limit=5)])
    f.publish_many("jobs", group("b", "b1", "b2"))
    assert drain(f) == [5, "b1", 6, "b2", 7, 8, 9]


def test_a_group_has_no_debt_after_the_queue_was_empty(f: Store) -> None:
    f.publish_many("jobs", group("a", *range(50)))
    assert drain(f, limit=10) == list(range(50))
    f.publish_many("jobs", group("b", "b1", "b2"))
    f.publish_many("jobs", group("a", "a1", "a2"))
    assert drain(f) == ["b1", "a1", "b2", "a2"]


def test_messages_without_a_group_are_one_group(f: Store) -> None:
    f.publish_many("jobs", range(3))
    f.publish("jobs", "a1", group="a")
    f.publish("jobs", 3)
    assert drain(f) == [0, "a1", 1, 2, 3]


def test_a_delayed_message_gets_its_turn_when_it_is_due(f: Store, harness: Harness) -> None:
    f.publish_many("jobs", [NewMessage(n, group="a", delay=60) for n in range(20)])
    f.publish_many("jobs", [*group("a", "now"), *group("b", "b1", "b2")])
    assert drain(f) == ["now", "b1", "b2"], "what is delayed has cost it no turn"
    harness.clock.advance(60)
    harness.sweep()
    f.publish_many("jobs", group("b", "b3", "b4"))
    assert payloads(f.claim("jobs", limit=4)) == [0, "b3", 1, "b4"]


def test_a_retry_goes_to_the_back_of_its_group(f: Store) -> None:
    f.publish_many("jobs", [*group("a", "a1", "a2", "a3"), *group("b", "b1", "b2", "b3")])
    f.nack(f.claim("jobs")[0], delay=0)
    assert drain(f) == ["b1", "a2", "b2", "a3", "b3", "a1"]


@pytest.mark.parametrize("way", ["release", "run out", "replay", "free"])
def test_a_message_that_comes_back_takes_a_turn(f: Store, harness: Harness, way: str) -> None:
    back = f.publish("jobs", "back", group="a", hold="review" if way == "free" else None)
    if way == "free":
        f.free(back.id)
    elif way == "run out":
        f.claim("jobs", lease=10)
        harness.clock.advance(10)
        harness.sweep()
    else:
        lease = f.claim("jobs")[0]
        f.release(lease) if way == "release" else f.reject(lease)
        if way == "replay":
            f.replay("jobs", ids=[back.id])
    f.publish_many("jobs", [*group("a", "a2"), *group("b", "b1", "b2")])
    assert drain(f) == ["back", "b1", "a2", "b2"]


def test_turns_and_a_limit_for_each_group_go_together(f: Store) -> None:
    f.queues.put("jobs", group_concurrency=2)
    f.publish_many("jobs", [*group("a", *range(100)), *group("b", "b1", "b2", "b3")])
    leases = f.claim("jobs", limit=10)
    assert payloads(leases) == [0, "b1", 1, "b2"]
    f.ack(leases[1])
    f.ack(leases[0])
    assert payloads(f.claim("jobs", limit=10)) == ["b3", 2]


def test_a_fair_message_can_be_cancelled_purged_and_replaced(f: Store) -> None:
    one, two, three = f.publish_many("jobs", group("a", 1, 2, 3))
    f.cancel(two.id)
    f.publish("jobs", "key 1", key="k", group="b")
    f.publish("jobs", "key 2", key="k", group="c")
    assert [m.payload for m in f.messages("jobs", state="ready")] == [1, "key 2", 3]
    assert (f.get(one.id).state, f.get(three.id).group) == (State.READY, "a")
    f.purge("jobs", state="ready")
    assert counts(f, "jobs") == {"cancelled": 1}
    assert drain(f) == []


def test_waiting_messages_take_turns_when_the_queue_becomes_fair(store: Store) -> None:
    store.publish_many("jobs", [*group("a", *range(10)), *group("b", "b1", "b2")])
    late = store.publish("jobs", "late", group="b", delay=0.5)
    store.queues.put("jobs", ordering="fair")
    first = payloads(store.claim("jobs", limit=4))
    assert sum(isinstance(p, str) for p in first) == 2
    store.publish("jobs", "c1", group="c")
    assert "c1" in payloads(store.claim("jobs", limit=2))
    assert store.get(late.id).state is State.DELAYED
    store.queues.put("jobs", ordering="fifo")
    assert len(drain(store)) == 7


def test_from_fair_to_first_come_first_served(f: Store) -> None:
    f.publish_many("jobs", [*group("a", 1, 2, 3), *group("b", 4, 5)])
    f.queues.put("jobs", ordering="fifo")
    f.publish("jobs", 6)
    assert drain(f) == [1, 2, 3, 4, 5, 6]


def test_turns_survive_a_restart(harness: Harness) -> None:
    store = harness.open()
    store.queues.put("jobs", ordering="fair")
    store.publish_many("jobs", group("a", *range(100)))
    store = harness.reopen()
    store.publish_many("jobs", [*group("b", "b1", "b2"), *group("a", "last")])
    got = drain(store, limit=3)
    assert (got.index("b1"), got.index("b2"), got[-1]) == (1, 3, "last")


def test_many_groups_get_equal_shares(f: Store) -> None:
    f.publish_many("jobs", [NewMessage(n, group=f"g{n % 7}") for n in range(700)])
    f.publish_many("jobs", [NewMessage(n, group=f"h{n % 5}") for n in range(50)])
    seen = Counter(lease.message.group for lease in f.claim("jobs", limit=120))
    assert seen == Counter({f"g{n}": 10 for n in range(7)} | {f"h{n}": 10 for n in range(5)})


def test_fair_queues_of_other_names_and_tenants_are_independent(f: Store, harness: Harness) -> None:
    other = harness.open(tenant="other")
    other.queues.put("jobs", ordering="fair")
    f.publish_many("jobs", group("a", *range(5)))
    other.publish_many("jobs", [*group("a", 1), *group("b", 2), *group("a", 3)])
    assert drain(other) == [1, 2, 3]
