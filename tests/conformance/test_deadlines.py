"""on_deadline: what happens to a message that still waits at its deadline."""

from datetime import datetime, timedelta

import pytest

from tampu import InvalidConfig, NewMessage, State
from tampu.broker.store import Store
from tests.conformance.harness import Harness, counts, payloads, verbs

ENDS = [("expire", State.EXPIRED, None), ("dead", State.DEAD, "deadline_passed")]
ends = pytest.mark.parametrize(("setting", "state", "reason"), ENDS)


def soon(harness: Harness, seconds: float = 10) -> datetime:
    return harness.clock.time + timedelta(seconds=seconds)


def test_a_deadline_ends_nothing_by_default(store: Store, harness: Harness) -> None:
    store.publish("jobs", 1, deadline=soon(harness))
    harness.clock.advance(60)
    harness.sweep()
    (lease,) = store.claim("jobs")
    assert lease.message.expires_at is None


@ends
def test_a_message_that_waits_at_its_deadline_ends(
    store: Store, harness: Harness, setting: str, state: State, reason: str | None
) -> None:
    store.queues.put("jobs", on_deadline=setting)
    at = soon(harness)
    ids = [
        store.publish("jobs", 1, deadline=at).id,
        store.publish("jobs", 2, deadline=at, delay=3600).id,
        store.publish("jobs", 3, deadline=at, hold="wait").id,
        store.publish("jobs", 4, deadline=at, key="k", idempotency_key="i", labels={"a": "b"}).id,
    ]
    later = store.publish("jobs", 5, deadline=soon(harness, 100))
    assert store.get(ids[0]).expires_at == at
    harness.clock.advance(9.999)
    assert harness.sweep() == 0
    harness.clock.advance(0.001)
    assert harness.sweep() == 4
    for id in ids:
        seen = store.get(id)
        assert (seen.state, seen.reason, seen.attempts, seen.ended_at) == (state, reason, 0, at)
        assert verbs(store, id) == ["publish", "expire"]
    assert counts(store, "jobs") == {str(state): 4, "ready": 1}
    assert store.get(later.id).state is State.READY
    assert [t.detail for t in store.journal(limit=100).transitions if t.verb == "expire"] == [reason] * 4


@ends
def test_a_claim_delivers_nothing_past_its_deadline(
    store: Store, harness: Harness, setting: str, state: State, reason: str | None
) -> None:
    store.queues.put("jobs", on_deadline=setting, ordering="deadline")
    late = [store.publish("jobs", n, deadline=soon(harness, n)).id for n in (3, 1, 2)]
    gone = store.publish("jobs", 0, deadline=soon(harness, -60)).id
    store.publish("jobs", 9, deadline=soon(harness, 60))
    harness.clock.advance(3)
    assert payloads(store.claim("jobs", limit=10)) == [9]
    assert [(store.get(id).state, store.get(id).reason) for id in (*late, gone)] == [(state, reason)] * 4


@ends
@pytest.mark.parametrize("way", ["nack", "release", "lease"])
def test_a_deadline_does_not_end_a_lease_and_counts_again_after_it(
    store: Store, harness: Harness, setting: str, state: State, reason: str | None, way: str
) -> None:
    store.queues.put("jobs", on_deadline=setting)
    for _ in range(2):
        store.publish("jobs", 1, deadline=soon(harness))
    kept, lost = store.claim("jobs", limit=2, lease=60)
    harness.clock.advance(30)
    assert harness.sweep() == 0
    store.ack(kept)
    if way == "nack":
        store.nack(lost, delay=0)
    elif way == "release":
        store.release(lost)
    else:
        harness.clock.advance(30)
    assert store.claim("jobs", limit=5) == []
    harness.sweep()
    assert store.claim("jobs", limit=5) == []
    assert store.get(kept.id).state is State.DONE
    assert (store.get(lost.id).state, store.get(lost.id).reason) == (state, reason)


@pytest.mark.parametrize(("ttl", "state"), [(5, State.EXPIRED), (20, State.DEAD)])
def test_the_first_of_ttl_and_deadline_decides(store: Store, harness: Harness, ttl: float, state: State) -> None:
    store.queues.put("jobs", on_deadline="dead")
    at = min(soon(harness), soon(harness, ttl))
    ids = [store.publish("jobs", 1, ttl=ttl, deadline=soon(harness), **more).id for more in ({}, {"key": "k"})]  # type: ignore[arg-type]
    assert [store.get(id).expires_at for id in ids] == [at, at]
    harness.clock.advance(60)
    harness.sweep()
    assert [store.get(id).state for id in ids] == [state, state]


def test_a_message_that_died_at_its_deadline_can_be_replayed(store: Store, harness: Harness) -> None:
    store.queues.put("jobs", on_deadline="dead")
    ids = [store.publish("jobs", n, deadline=soon(harness), **more).id for n, more in enumerate(({}, {"key": "k"}))]  # type: ignore[arg-type]
    harness.clock.advance(60)
    harness.sweep()
    assert len(store.replay("jobs", where={"reason": "deadline_passed"})) == 2
    harness.clock.advance(60)
    assert harness.sweep() == 0
    assert [store.get(id).expires_at for id in ids] == [None, None]
    for lease in store.claim("jobs", limit=5):
        store.nack(lease, delay=0)
    assert sorted(payloads(store.claim("jobs", limit=5))) == [0, 1]


def test_a_future_deadline_still_counts_after_a_replay(store: Store, harness: Harness) -> None:
    store.queues.put("jobs", on_deadline="dead")
    id = store.publish("jobs", 1, deadline=soon(harness)).id
    store.reject(store.claim("jobs")[0], reason="bad")
    assert len(store.replay("jobs", ids=[id])) == 1
    harness.clock.advance(10)
    assert store.claim("jobs") == []
    assert store.get(id).reason == "deadline_passed"


def test_a_change_of_the_setting_affects_new_messages_only(store: Store, harness: Harness) -> None:
    published = {}
    for setting in ("keep", "dead", "expire"):
        store.queues.put("jobs", on_deadline=setting)
        published[setting] = store.publish("jobs", setting, deadline=soon(harness)).id
    store.queues.put("jobs", on_deadline=None)
    harness.clock.advance(10)
    harness.sweep()
    assert [store.get(id).state for id in published.values()] == [State.READY, State.DEAD, State.EXPIRED]


def test_a_key_replaces_the_payload_and_not_the_deadline(store: Store, harness: Harness) -> None:
    store.queues.put("jobs", on_deadline="dead")
    id = store.publish("jobs", 1, key="k", deadline=soon(harness)).id
    store.queues.put("jobs", on_deadline="keep")
    assert store.publish("jobs", 2, key="k", deadline=soon(harness, 100)).id == id
    harness.clock.advance(10)
    harness.sweep()
    seen = store.get(id)
    assert (seen.payload, seen.state, seen.reason) == (2, State.DEAD, "deadline_passed")


def test_the_setting_is_not_part_of_an_idempotent_request(store: Store, harness: Harness) -> None:
    at = soon(harness)
    store.queues.put("jobs", on_deadline="dead")
    first = store.publish("jobs", 1, idempotency_key="i", deadline=at)
    store.queues.put("jobs", on_deadline="keep")
    assert store.publish("jobs", 1, idempotency_key="i", deadline=at).id == first.id


@ends
def test_a_message_that_ends_at_its_deadline_gives_its_slot_to_the_next(
    store: Store, harness: Harness, setting: str, state: State, reason: str | None
) -> None:
    store.queues.put("jobs", on_deadline=setting, group_order=True)
    at = soon(harness)
    store.publish_many("jobs", [NewMessage(1, group="a", deadline=at), NewMessage(2, group="a", deadline=at)])
    last = store.publish("jobs", 3, group="a")
    assert last.state is State.HELD
    harness.clock.advance(10)
    assert payloads(store.claim("jobs", limit=5)) == [3]
    assert counts(store, "jobs") == {str(state): 2, "leased": 1}


def test_the_deadline_still_counts_after_opening_again(harness: Harness) -> None:
    store = harness.open()
    store.queues.put("*", on_deadline="dead")
    id = store.publish("jobs", 1, deadline=soon(harness)).id
    store = harness.reopen()
    harness.clock.advance(10)
    harness.sweep()
    assert store.get(id).reason == "deadline_passed"


@pytest.mark.parametrize("value", ["drop", True, 1])
def test_other_values_of_the_setting_are_refused(store: Store, value: object) -> None:
    with pytest.raises(InvalidConfig):
        store.queues.put("jobs", on_deadline=value)
