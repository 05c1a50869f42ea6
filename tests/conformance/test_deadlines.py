"""on_deadline: what becomes of a message that still waits at its deadline."""

from datetime import datetime, timedelta

import pytest

from tampu import InvalidConfig, NewMessage, State
from tampu.broker.queue import Queue
from tests.conformance.house import House, counts, payloads, verbs

ENDS = [("expire", State.EXPIRED, None), ("dead", State.DEAD, "deadline_passed")]
ends = pytest.mark.parametrize(("setting", "state", "reason"), ENDS)


def soon(house: House, seconds: float = 10) -> datetime:
    return house.clock.time + timedelta(seconds=seconds)


def test_a_deadline_ends_nothing_unless_it_is_asked_for(q: Queue, house: House) -> None:
    q.publish("jobs", 1, deadline=soon(house))
    house.clock.advance(60)
    house.sweep()
    (lease,) = q.claim("jobs")
    assert lease.message.expires_at is None


@ends
def test_who_waits_at_its_deadline_ends(q: Queue, house: House, setting: str, state: State, reason: str | None) -> None:
    q.queues.put("jobs", on_deadline=setting)
    at = soon(house)
    ids = [
        q.publish("jobs", 1, deadline=at).id,
        q.publish("jobs", 2, deadline=at, delay=3600).id,
        q.publish("jobs", 3, deadline=at, hold="wait").id,
        q.publish("jobs", 4, deadline=at, key="k", idempotency_key="i", labels={"a": "b"}).id,
    ]
    later = q.publish("jobs", 5, deadline=soon(house, 100))
    assert q.get(ids[0]).expires_at == at
    house.clock.advance(9.999)
    assert house.sweep() == 0
    house.clock.advance(0.001)
    assert house.sweep() == 4
    for id in ids:
        seen = q.get(id)
        assert (seen.state, seen.reason, seen.attempts, seen.ended_at) == (state, reason, 0, at)
        assert verbs(q, id) == ["publish", "expire"]
    assert counts(q, "jobs") == {str(state): 4, "ready": 1}
    assert q.get(later.id).state is State.READY
    assert [t.detail for t in q.journal(limit=100).transitions if t.verb == "expire"] == [reason] * 4


@ends
def test_a_claim_gives_out_nothing_past_its_deadline(
    q: Queue, house: House, setting: str, state: State, reason: str | None
) -> None:
    q.queues.put("jobs", on_deadline=setting, ordering="deadline")
    late = [q.publish("jobs", n, deadline=soon(house, n)).id for n in (3, 1, 2)]
    gone = q.publish("jobs", 0, deadline=soon(house, -60)).id
    q.publish("jobs", 9, deadline=soon(house, 60))
    house.clock.advance(3)
    assert payloads(q.claim("jobs", limit=10)) == [9]
    assert [(q.get(id).state, q.get(id).reason) for id in (*late, gone)] == [(state, reason)] * 4


@ends
@pytest.mark.parametrize("way", ["nack", "release", "lease"])
def test_a_worker_keeps_what_it_has_and_the_deadline_holds_again_afterwards(
    q: Queue, house: House, setting: str, state: State, reason: str | None, way: str
) -> None:
    q.queues.put("jobs", on_deadline=setting)
    for _ in range(2):
        q.publish("jobs", 1, deadline=soon(house))
    kept, lost = q.claim("jobs", limit=2, lease=60)
    house.clock.advance(30)
    assert house.sweep() == 0
    q.ack(kept)
    if way == "nack":
        q.nack(lost, delay=0)
    elif way == "release":
        q.release(lost)
    else:
        house.clock.advance(30)
    assert q.claim("jobs", limit=5) == []
    house.sweep()
    assert q.claim("jobs", limit=5) == []
    assert q.get(kept.id).state is State.DONE
    assert (q.get(lost.id).state, q.get(lost.id).reason) == (state, reason)


@pytest.mark.parametrize(("ttl", "state"), [(5, State.EXPIRED), (20, State.DEAD)])
def test_the_first_of_ttl_and_deadline_decides(q: Queue, house: House, ttl: float, state: State) -> None:
    q.queues.put("jobs", on_deadline="dead")
    at = min(soon(house), soon(house, ttl))
    ids = [q.publish("jobs", 1, ttl=ttl, deadline=soon(house), **more).id for more in ({}, {"key": "k"})]  # type: ignore[arg-type]
    assert [q.get(id).expires_at for id in ids] == [at, at]
    house.clock.advance(60)
    house.sweep()
    assert [q.get(id).state for id in ids] == [state, state]


def test_who_died_of_its_deadline_runs_when_it_is_replayed(q: Queue, house: House) -> None:
    q.queues.put("jobs", on_deadline="dead")
    ids = [q.publish("jobs", n, deadline=soon(house), **more).id for n, more in enumerate(({}, {"key": "k"}))]  # type: ignore[arg-type]
    house.clock.advance(60)
    house.sweep()
    assert len(q.replay("jobs", where={"reason": "deadline_passed"})) == 2
    house.clock.advance(60)
    assert house.sweep() == 0
    assert [q.get(id).expires_at for id in ids] == [None, None]
    for lease in q.claim("jobs", limit=5):
        q.nack(lease, delay=0)
    assert sorted(payloads(q.claim("jobs", limit=5))) == [0, 1]


def test_a_deadline_still_to_come_holds_after_a_replay(q: Queue, house: House) -> None:
    q.queues.put("jobs", on_deadline="dead")
    id = q.publish("jobs", 1, deadline=soon(house)).id
    q.reject(q.claim("jobs")[0], reason="bad")
    assert len(q.replay("jobs", ids=[id])) == 1
    house.clock.advance(10)
    assert q.claim("jobs") == []
    assert q.get(id).reason == "deadline_passed"


def test_a_change_of_the_setting_is_for_messages_published_from_then_on(q: Queue, house: House) -> None:
    published = {}
    for setting in ("keep", "dead", "expire"):
        q.queues.put("jobs", on_deadline=setting)
        published[setting] = q.publish("jobs", setting, deadline=soon(house)).id
    q.queues.put("jobs", on_deadline=None)
    house.clock.advance(10)
    house.sweep()
    assert [q.get(id).state for id in published.values()] == [State.READY, State.DEAD, State.EXPIRED]


def test_a_key_replaces_the_payload_and_not_the_deadline(q: Queue, house: House) -> None:
    q.queues.put("jobs", on_deadline="dead")
    id = q.publish("jobs", 1, key="k", deadline=soon(house)).id
    q.queues.put("jobs", on_deadline="keep")
    assert q.publish("jobs", 2, key="k", deadline=soon(house, 100)).id == id
    house.clock.advance(10)
    house.sweep()
    seen = q.get(id)
    assert (seen.payload, seen.state, seen.reason) == (2, State.DEAD, "deadline_passed")


def test_the_setting_is_no_part_of_an_idempotent_request(q: Queue, house: House) -> None:
    at = soon(house)
    q.queues.put("jobs", on_deadline="dead")
    first = q.publish("jobs", 1, idempotency_key="i", deadline=at)
    q.queues.put("jobs", on_deadline="keep")
    assert q.publish("jobs", 1, idempotency_key="i", deadline=at).id == first.id


@ends
def test_who_ends_at_its_deadline_leaves_its_place_to_the_next_of_its_group(
    q: Queue, house: House, setting: str, state: State, reason: str | None
) -> None:
    q.queues.put("jobs", on_deadline=setting, group_order=True)
    at = soon(house)
    q.publish_many("jobs", [NewMessage(1, group="a", deadline=at), NewMessage(2, group="a", deadline=at)])
    last = q.publish("jobs", 3, group="a")
    assert last.state is State.HELD
    house.clock.advance(10)
    assert payloads(q.claim("jobs", limit=5)) == [3]
    assert counts(q, "jobs") == {str(state): 2, "leased": 1}


def test_the_deadline_holds_after_the_store_was_opened_again(house: House) -> None:
    q = house.open()
    q.queues.put("*", on_deadline="dead")
    id = q.publish("jobs", 1, deadline=soon(house)).id
    q = house.reopen()
    house.clock.advance(10)
    house.sweep()
    assert q.get(id).reason == "deadline_passed"


@pytest.mark.parametrize("value", ["drop", True, 1])
def test_only_what_it_can_be_is_taken(q: Queue, value: object) -> None:
    with pytest.raises(InvalidConfig):
        q.queues.put("jobs", on_deadline=value)
