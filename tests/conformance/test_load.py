"""Load: many simple messages at once, with given ids and every promise of publish."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

import pytest

import tampu
from tampu.broker.store import Store
from tampu.engines import port
from tampu.model.message import State
from tampu.model.values import pack_payload
from tests.conformance.harness import Harness, counts, inside, payloads, verbs

ID_PREFIX = bytes.fromhex("0123456789ab8cde8f0123")


@pytest.fixture
def engine(store: Store) -> port.Engine:
    return inside(store).engine


def ids(numbers: Sequence[int], id_prefix: bytes = ID_PREFIX) -> list[str]:
    return [str(uuid.UUID(bytes=id_prefix + n.to_bytes(5, "big"))) for n in numbers]


def load(numbers: Sequence[int], *, tenant: str = "default", queue: str = "jobs", **more: Any) -> port.Load:
    bodies = [pack_payload(f"type.{n % 2}", b"%d" % n, "application/json") for n in numbers]
    starts = [0]
    for body in bodies:
        starts.append(starts[-1] + len(body))
    given = {"id_prefix": ID_PREFIX, "types": [f"type.{n % 2}" for n in numbers], "max_attempts": 3, **more}
    return port.Load(tenant, queue, numbers=numbers, bodies=b"".join(bodies), starts=starts, **given)


def test_loaded_messages_are_delivered_in_their_order_under_their_ids(engine: port.Engine, store: Store) -> None:
    assert engine.run([load(range(5))]) == [5]
    assert [m.id for m in store.messages("jobs")] == ids(range(5))
    leases = [*store.claim("jobs", limit=2), *store.claim("jobs", limit=10)]
    assert [lease.id for lease in leases] == ids(range(5))
    assert payloads(leases) == [0, 1, 2, 3, 4]
    assert {(lease.message.max_attempts, lease.attempt) for lease in leases} == {(3, 1)}
    assert [lease.message.type for lease in leases] == ["type.0", "type.1"] * 2 + ["type.0"]
    assert all(outcome.ok for outcome in store.settle([tampu.Ack(lease) for lease in leases]))
    assert counts(store, "jobs") == {"done": 5}


def test_loading_again_stores_only_what_is_not_there(engine: port.Engine, store: Store) -> None:
    engine.run([load([2, 3, 7])])
    store.ack(store.claim("jobs")[0])
    assert engine.run([load(range(9)), load(range(9)), load([8, 9])]) == [6, 0, 1]
    assert [m.id for m in store.messages("jobs", state="ready")] == ids([3, 7, 0, 1, 4, 5, 6, 8, 9])
    assert counts(store, "jobs") == {"ready": 9, "done": 1}
    published = [t for t in store.journal().transitions if t.verb == "publish"]
    assert [t.id for t in published] == ids([2, 3, 7, 0, 1, 4, 5, 6, 8, 9])
    assert [t.type for t in published] == [f"type.{n % 2}" for n in (2, 3, 7, 0, 1, 4, 5, 6, 8, 9)]
    assert {t.state for t in published} == {State.READY}


@pytest.mark.parametrize("loaded", [True, False])
def test_an_id_of_another_queue_is_a_conflict_and_nothing_is_stored(
    engine: port.Engine, store: Store, loaded: bool
) -> None:
    if loaded:
        engine.run([load([2, 3], queue="others")])
    else:
        for id in ids([2, 3]):
            store.publish("others", "mine", id=id)
    (refused,) = engine.run([load(range(5))])
    assert isinstance(refused, tampu.IdempotencyConflict)
    assert "another queue" in str(refused)
    assert "others" not in str(refused)
    assert [stats.queue for stats in store.stats()] == ["others"]
    assert engine.run([load([0, 1, 4])]) == [3]
    assert [m.id for m in store.messages("jobs")] == ids([0, 1, 4])


def test_loaded_and_published_messages_keep_one_order_and_one_count(engine: port.Engine, store: Store) -> None:
    store.publish("jobs", "before")
    engine.run([load(range(3))])
    store.publish("jobs", "own", id=ids([77])[0])
    engine.run([load([50, 77])])
    store.publish("jobs", "after")
    assert counts(store, "jobs") == {"ready": 7}
    assert payloads(store.claim("jobs", limit=10)) == ["before", 0, 1, 2, "own", 50, "after"]


def test_single_messages_of_a_load_can_be_found_cancelled_retried_and_removed(
    engine: port.Engine, store: Store, harness: Harness
) -> None:
    engine.run([load(range(6))])
    all_ids = ids(range(6))
    assert store.get(all_ids[4]).payload == 4
    assert [outcome.ok for outcome in store.cancel(all_ids[2], all_ids[0])] == [True, True]
    first, second = store.claim("jobs", limit=2)
    assert (first.id, second.id) == (all_ids[1], all_ids[3])
    store.nack(first, "no", delay=0)
    store.reject(second, "bad")
    assert [lease.id for lease in store.claim("jobs", limit=10)] == [all_ids[4], all_ids[5], all_ids[1]]
    assert len(store.replay("jobs", ids=[all_ids[3]])) == 1
    assert store.purge("jobs", state="ready") == 1
    assert verbs(store, all_ids[3]) == ["publish", "claim", "reject", "replay", "purge"]
    harness.clock.advance(3600)
    harness.sweep()
    assert counts(store, "jobs") == {"ready": 3, "cancelled": 2}
    assert {m.id for m in store.messages("jobs", state="ready")} == {all_ids[n] for n in (1, 4, 5)}


def test_a_load_that_does_not_fit_is_refused_whole(engine: port.Engine, store: Store, harness: Harness) -> None:
    assert engine.run([load(range(3), max_depth=5)]) == [3]
    with harness.unchanged(store):
        (refused,) = engine.run([load(range(3, 6), max_depth=5)])
        assert isinstance(refused, tampu.QueueFull)
    # What is there already takes no room, and neighbours are not spoiled.
    replies = engine.run([load(range(5), max_depth=5), load([9], max_depth=5), load([10], queue="other", max_depth=1)])
    assert replies[0] == 2
    assert isinstance(replies[1], tampu.QueueFull)
    assert replies[2] == 1
    assert (counts(store, "jobs"), counts(store, "other")) == ({"ready": 5}, {"ready": 1})


def test_tenants_do_not_see_each_others_loads(engine: port.Engine, store: Store, harness: Harness) -> None:
    other = harness.open(tenant="other")
    assert engine.run([load(range(3)), load(range(3), tenant="other")]) == [3, 3]
    assert [m.id for m in other.messages("jobs")] == ids(range(3))
    store.cancel(*ids(range(3)))
    assert counts(other, "jobs") == {"ready": 3}


def test_a_load_survives_reopening(engine: port.Engine, harness: Harness) -> None:
    engine.run([load(range(4))])
    again = harness.reopen()
    assert inside(again).engine.run([load(range(5))]) == [1]
    assert payloads(again.claim("jobs", limit=10)) == [0, 1, 2, 3, 4]


MALFORMED: list[dict[str, Any]] = [
    {"id_prefix": bytes(11)},
    {"id_prefix": ID_PREFIX[:10]},
    {"numbers": []},
    {"numbers": [1, 1]},
    {"numbers": [2, 1]},
    {"numbers": [-1, 0]},
    {"numbers": [0, 1 << 40]},
    {"numbers": [1]},
    {"starts": [0, 5, 4]},
    {"starts": [0, 5, 10**6]},
    {"types": ["x"]},
]


def test_a_malformed_load_is_refused(engine: port.Engine, store: Store, harness: Harness) -> None:
    call = load([1, 2])
    with harness.unchanged(store):
        for more in MALFORMED:
            fields = {name: getattr(call, name) for name in call.__struct_fields__} | more
            (refused,) = engine.run([port.Load(**fields)])
            assert isinstance(refused, tampu.InvalidMessage), more
