"""Dead letters: what is kept of them, and replaying by id or filter, with a preview."""

import uuid
from datetime import timedelta

import pytest

from tampu import InvalidState, NewMessage, NotFound, State, Where
from tampu.broker.queue import Queue
from tests.conformance.house import House, counts, payloads, verbs


def _bury(q: Queue, payload: object, reason: str = "bad", error: str | None = None, **fields: object) -> str:
    q.publish("emails", payload, **fields)  # type: ignore[arg-type]  # a bag of fields
    lease = q.claim("emails")[0]
    q.reject(lease, reason=reason, error=error)
    return lease.id


def test_replay_makes_a_dead_message_ready_with_the_same_id_and_no_attempts(q: Queue) -> None:
    message = q.publish("emails", 1, max_attempts=2, correlation_id="c", parent_id="p")
    for _ in range(2):
        q.nack(q.claim("emails")[0], error="x", delay=0)
    assert q.get(message.id).state is State.DEAD
    replayed = q.replay("emails", ids=[message.id])
    assert len(replayed) == 1
    seen = q.get(message.id)
    assert (seen.state, seen.attempts, seen.reason) == (State.READY, 0, None)
    assert (seen.correlation_id, seen.parent_id, seen.created_us) == ("c", "p", message.created_us)
    assert q.claim("emails")[0].attempt == 1


def test_replay_keeps_the_history_and_gives_all_attempts_again(q: Queue) -> None:
    message = q.publish("emails", 1, max_attempts=1)
    q.nack(q.claim("emails")[0], error="before")
    q.replay("emails", ids=[message.id])
    q.nack(q.claim("emails")[0], error="after")
    seen = q.get(message.id)
    assert (seen.state, seen.reason) == (State.DEAD, "retries_exhausted")
    assert [(f.attempt, f.error) for f in seen.failures] == [(1, "before"), (1, "after")]
    assert verbs(q, message.id) == ["publish", "claim", "nack", "replay", "claim", "nack"]


def test_replay_goes_to_the_back(q: Queue) -> None:
    _bury(q, "dead")
    q.publish("emails", "waiting")
    q.replay("emails", where={})
    assert payloads(q.claim("emails", limit=5)) == ["waiting", "dead"]


def test_replay_by_filter_takes_only_what_matches(q: Queue) -> None:
    one = _bury(q, 1, reason="decode_failed", type="email.send", labels={"a": "1"})
    two = _bury(q, 2, reason="decode_failed", type="email.send", labels={"a": "2"})
    _bury(q, 3, reason="oversize", type="email.send", labels={"a": "1"})
    _bury(q, 4, reason="decode_failed", type="other", labels={"a": "1"})
    replayed = q.replay("emails", where=Where(reason="decode_failed", type="email.send", labels={"a": "1"}))
    assert [m.id for m in replayed.messages] == [one]
    assert [m.id for m in q.replay("emails", where={"reason": "decode_failed", "type": "email.send"}).messages] == [two]
    assert counts(q, "emails") == {"ready": 2, "dead": 2}


def test_replay_filters_by_error_key_group_correlation_and_time(q: Queue, house: House) -> None:
    first = _bury(q, 1, error="SMTP 421 try later", key="k", group="g", correlation_id="c")
    house.clock.advance(60)
    later = house.clock.time
    second = _bury(q, 2, error="SMTP 550 no such user")

    def preview(**where: object) -> list[str]:
        return [m.id for m in q.replay("emails", where=where, dry_run=True).messages]

    assert preview(error="421") == preview(key="k") == preview(group="g") == preview(correlation_id="c") == [first]
    assert preview(created_before=later) == preview(ended_before=later) == [first]
    assert preview(created_after=later) == preview(ended_after=later) == [second]
    assert preview(error="SMTP") == preview() == [first, second]
    assert preview(key="k", error="550") == []


def test_replay_preview_changes_nothing(q: Queue, house: House) -> None:
    ids = [_bury(q, n) for n in range(3)]
    with house.unchanged(q):
        preview = q.replay("emails", where={}, dry_run=True)
    assert [m.id for m in preview.messages] == ids
    assert (len(preview), preview.dry_run) == (3, True)


def test_replay_with_a_limit_takes_the_oldest_dead(q: Queue, house: House) -> None:
    ids = []
    for n in range(5):
        ids.append(_bury(q, n))
        house.clock.advance(1)
    assert [m.id for m in q.replay("emails", where={}, limit=2).messages] == ids[:2]
    assert [m.id for m in q.replay("emails", ids=ids[2:], limit=1).messages] == ids[2:3]
    assert counts(q, "emails") == {"ready": 3, "dead": 2}


def test_replay_of_many_goes_through_all(q: Queue) -> None:
    q.publish_many("emails", [NewMessage(n, type="odd" if n % 2 else "even") for n in range(1203)])
    for lease in q.claim("emails", limit=2000):
        q.reject(lease)
    assert len(q.replay("emails", where={"type": "odd"})) == 601
    assert counts(q, "emails") == {"ready": 601, "dead": 602}


def test_replay_by_id_says_which_can_not_be_replayed(q: Queue) -> None:
    dead = _bury(q, 1)
    alive = q.publish("emails", 2).id
    elsewhere = q.publish("letters", 3).id
    unknown = "019b76da-a800-7000-8000-000000000001"
    replayed = q.replay("emails", ids=[dead, alive, elsewhere, unknown])
    assert len(replayed) == 1
    outcomes = {o.id: o for o in replayed.outcomes}
    assert outcomes[dead].state is State.READY
    assert isinstance(outcomes[alive].error, InvalidState)
    assert isinstance(outcomes[elsewhere].error, NotFound)
    assert isinstance(outcomes[unknown].error, NotFound)


def test_replaying_twice_delivers_once(q: Queue) -> None:
    dead = _bury(q, 1)
    assert len(q.replay("emails", ids=[dead, dead])) == 1
    assert len(q.replay("emails", ids=[dead])) == 0
    assert len(q.claim("emails", limit=5)) == 1


def test_one_message_that_can_not_be_replayed_does_not_stop_the_others(q: Queue) -> None:
    ids = [_bury(q, n, key="same") for n in range(3)]
    q.publish("emails", "holder", key="same")
    assert len(q.replay("emails", where={})) == 3
    assert {lease.id for lease in q.claim("emails", limit=10)} > set(ids)


def test_only_dead_letters_are_replayed(q: Queue, house: House) -> None:
    q.publish("emails", 1)
    q.ack(q.claim("emails")[0])
    q.publish("emails", 2)
    with house.unchanged(q):
        assert len(q.replay("emails", where={})) == 0


def test_replay_in_a_queue_that_does_not_exist_is_not_found(q: Queue) -> None:
    with pytest.raises(NotFound):
        q.replay("nowhere", where={})


def test_dead_letters_are_listed_oldest_death_first(q: Queue, house: House) -> None:
    q.publish_many("emails", ["a", "b"])
    a, b = q.claim("emails", limit=2)
    q.reject(b)
    house.clock.advance(1)
    q.reject(a)
    dead = q.messages("emails", state="dead").messages
    assert [m.payload for m in dead] == ["b", "a"]
    assert dead[0].ended_at == house.clock.time - timedelta(seconds=1)


def test_purge_removes_dead_letters_for_good(q: Queue) -> None:
    ids = [_bury(q, n) for n in range(3)]
    assert q.purge("emails", state="dead", dry_run=True) == 3
    assert q.purge("emails", state="dead") == 3
    assert counts(q, "emails") == {}
    for id in ids:
        with pytest.raises(NotFound):
            q.get(id)
        assert verbs(q, id) == ["publish", "claim", "reject", "purge"]


def _die(q: Queue, **fields: object) -> str:
    """A message that has used up its attempts."""
    message = q.publish("emails", 1, **fields)  # type: ignore[arg-type]  # a bag of fields
    while q.get(message.id).state is not State.DEAD:
        q.nack(q.claim("emails")[0], delay=0)
    return message.id


@pytest.mark.parametrize("now", [1, 4])
def test_a_replayed_message_gets_the_max_attempts_that_its_queue_has_now(q: Queue, now: int) -> None:
    q.queues.put("emails", max_attempts=2)
    ids = [_die(q, **fields) for fields in ({}, {"labels": {"a": "b"}}, {"key": "k"}, {"id": str(uuid.uuid4())})]
    q.queues.put("emails", max_attempts=now)
    assert len(q.replay("emails", ids=ids[:2])) == 2
    assert len(q.replay("emails", where={})) == 2
    for id in ids:
        assert q.get(id).max_attempts == now
    tries = []
    for _ in range(4 * now):
        (lease,) = q.claim("emails")
        q.nack(lease, delay=0)
        tries.append(lease.attempt)
    assert sorted(tries) == sorted([*range(1, now + 1)] * 4)
    assert {q.get(id).reason for id in ids} == {"retries_exhausted"}


def test_a_replayed_message_keeps_the_max_attempts_that_its_publisher_gave(q: Queue, house: House) -> None:
    q.queues.put("emails", max_attempts=2)
    same, more = _die(q, max_attempts=2), _die(q, max_attempts=3)
    keyed = q.publish("emails", 1, key="k", max_attempts=1).id
    assert q.publish("emails", 2, key="k").id == keyed, "a new payload, and nothing else"
    q.nack(q.claim("emails")[0])
    plain = _die(q)
    q.queues.put("emails", max_attempts=9)
    assert len(q.replay("emails", ids=[plain, same, more, keyed])) == 4
    q = house.reopen()
    assert [q.get(id).max_attempts for id in (same, more, keyed, plain)] == [2, 3, 1, 9]


def test_the_attempts_that_a_publisher_gives_are_no_part_of_the_request(q: Queue) -> None:
    first = q.publish("emails", 1, idempotency_key="i")
    assert q.publish("emails", 1, idempotency_key="i", max_attempts=7).id == first.id
