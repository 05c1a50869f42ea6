"""Dead letters: what is stored with them, and replay by id or filter, with a preview."""

import uuid
from datetime import timedelta

import pytest

from tampu import InvalidState, NewMessage, NotFound, Reject, State, Where
from tampu.broker.store import Store
from tests.conformance.harness import Harness, counts, payloads, verbs


def _bury(store: Store, payload: object, reason: str = "bad", error: str | None = None, **fields: object) -> str:
    store.publish("emails", payload, **fields)  # type: ignore[arg-type]  # a bag of fields
    lease = store.claim("emails")[0]
    store.reject(lease, reason=reason, error=error)
    return lease.id


def test_replay_makes_a_dead_message_ready_with_the_same_id_and_no_attempts(store: Store) -> None:
    message = store.publish("emails", 1, max_attempts=2, correlation_id="c", parent_id="p")
    for _ in range(2):
        store.nack(store.claim("emails")[0], error="x", delay=0)
    assert store.get(message.id).state is State.DEAD
    replayed = store.replay("emails", ids=[message.id])
    assert len(replayed) == 1
    seen = store.get(message.id)
    assert (seen.state, seen.attempts, seen.reason) == (State.READY, 0, None)
    assert (seen.correlation_id, seen.parent_id, seen.created_us) == ("c", "p", message.created_us)
    assert store.claim("emails")[0].attempt == 1


def test_replay_keeps_the_history_and_gives_all_attempts_again(store: Store) -> None:
    message = store.publish("emails", 1, max_attempts=1)
    store.nack(store.claim("emails")[0], error="before")
    store.replay("emails", ids=[message.id])
    store.nack(store.claim("emails")[0], error="after")
    seen = store.get(message.id)
    assert (seen.state, seen.reason) == (State.DEAD, "retries_exhausted")
    assert [(f.attempt, f.error) for f in seen.failures] == [(1, "before"), (1, "after")]
    assert verbs(store, message.id) == ["publish", "claim", "nack", "replay", "claim", "nack"]


def test_replay_goes_to_the_back(store: Store) -> None:
    _bury(store, "dead")
    store.publish("emails", "waiting")
    store.replay("emails", where={})
    assert payloads(store.claim("emails", limit=5)) == ["waiting", "dead"]


def test_replay_by_filter_takes_only_what_matches(store: Store) -> None:
    one = _bury(store, 1, reason="decode_failed", type="email.send", labels={"a": "1"})
    two = _bury(store, 2, reason="decode_failed", type="email.send", labels={"a": "2"})
    _bury(store, 3, reason="oversize", type="email.send", labels={"a": "1"})
    _bury(store, 4, reason="decode_failed", type="other", labels={"a": "1"})
    replayed = store.replay("emails", where=Where(reason="decode_failed", type="email.send", labels={"a": "1"}))
    assert [m.id for m in replayed.messages] == [one]
    assert [m.id for m in store.replay("emails", where={"reason": "decode_failed", "type": "email.send"}).messages] == [
        two
    ]
    assert counts(store, "emails") == {"ready": 2, "dead": 2}


def test_replay_filters_by_error_key_group_correlation_and_time(store: Store, harness: Harness) -> None:
    first = _bury(store, 1, error="SMTP 421 try later", key="k", group="g", correlation_id="c")
    harness.clock.advance(60)
    later = harness.clock.time
    second = _bury(store, 2, error="SMTP 550 no such user")

    def preview(**where: object) -> list[str]:
        return [m.id for m in store.replay("emails", where=where, dry_run=True).messages]

    assert preview(error="421") == preview(key="k") == preview(group="g") == preview(correlation_id="c") == [first]
    assert preview(created_before=later) == preview(ended_before=later) == [first]
    assert preview(created_after=later) == preview(ended_after=later) == [second]
    assert preview(error="SMTP") == preview() == [first, second]
    assert preview(key="k", error="550") == []


def test_replay_preview_changes_nothing(store: Store, harness: Harness) -> None:
    ids = [_bury(store, n) for n in range(3)]
    with harness.unchanged(store):
        preview = store.replay("emails", where={}, dry_run=True)
    assert [m.id for m in preview.messages] == ids
    assert (len(preview), preview.dry_run) == (3, True)


def test_replay_with_a_limit_takes_the_oldest_dead(store: Store, harness: Harness) -> None:
    ids = []
    for n in range(5):
        ids.append(_bury(store, n))
        harness.clock.advance(1)
    assert [m.id for m in store.replay("emails", where={}, limit=2).messages] == ids[:2]
    assert [m.id for m in store.replay("emails", ids=ids[2:], limit=1).messages] == ids[2:3]
    assert counts(store, "emails") == {"ready": 3, "dead": 2}


def test_replay_of_many_goes_through_all(store: Store) -> None:
    store.publish_many("emails", [NewMessage(n, type="odd" if n % 2 else "even") for n in range(1203)])
    store.settle([Reject(lease) for lease in store.claim("emails", limit=2000)])
    assert len(store.replay("emails", where={"type": "odd"})) == 601
    assert counts(store, "emails") == {"ready": 601, "dead": 602}


def test_replay_by_id_says_which_cannot_be_replayed(store: Store) -> None:
    dead = _bury(store, 1)
    alive = store.publish("emails", 2).id
    elsewhere = store.publish("letters", 3).id
    unknown = "019b76da-a800-7000-8000-000000000001"
    replayed = store.replay("emails", ids=[dead, alive, elsewhere, unknown])
    assert len(replayed) == 1
    outcomes = {o.id: o for o in replayed.outcomes}
    assert outcomes[dead].state is State.READY
    assert isinstance(outcomes[alive].error, InvalidState)
    assert isinstance(outcomes[elsewhere].error, NotFound)
    assert isinstance(outcomes[unknown].error, NotFound)


def test_replaying_twice_delivers_once(store: Store) -> None:
    dead = _bury(store, 1)
    assert len(store.replay("emails", ids=[dead, dead])) == 1
    assert len(store.replay("emails", ids=[dead])) == 0
    assert len(store.claim("emails", limit=5)) == 1


def test_one_message_that_cannot_be_replayed_does_not_stop_the_others(store: Store) -> None:
    ids = [_bury(store, n, key="same") for n in range(3)]
    store.publish("emails", "holder", key="same")
    assert len(store.replay("emails", where={})) == 3
    assert {lease.id for lease in store.claim("emails", limit=10)} > set(ids)


def test_only_dead_letters_are_replayed(store: Store, harness: Harness) -> None:
    store.publish("emails", 1)
    store.ack(store.claim("emails")[0])
    store.publish("emails", 2)
    with harness.unchanged(store):
        assert len(store.replay("emails", where={})) == 0


def test_replay_in_a_queue_that_does_not_exist_is_not_found(store: Store) -> None:
    with pytest.raises(NotFound):
        store.replay("nowhere", where={})


def test_dead_letters_are_listed_oldest_death_first(store: Store, harness: Harness) -> None:
    store.publish_many("emails", ["a", "b"])
    a, b = store.claim("emails", limit=2)
    store.reject(b)
    harness.clock.advance(1)
    store.reject(a)
    dead = store.messages("emails", state="dead").messages
    assert [m.payload for m in dead] == ["b", "a"]
    assert dead[0].ended_at == harness.clock.time - timedelta(seconds=1)


def test_purge_removes_dead_letters_for_good(store: Store) -> None:
    ids = [_bury(store, n) for n in range(3)]
    assert store.purge("emails", state="dead", dry_run=True) == 3
    assert store.purge("emails", state="dead") == 3
    assert counts(store, "emails") == {}
    for id in ids:
        with pytest.raises(NotFound):
            store.get(id)
        assert verbs(store, id) == ["publish", "claim", "reject", "purge"]


def _die(store: Store, **fields: object) -> str:
    """A message that has used up its attempts."""
    message = store.publish("emails", 1, **fields)  # type: ignore[arg-type]  # a bag of fields
    while store.get(message.id).state is not State.DEAD:
        store.nack(store.claim("emails")[0], delay=0)
    return message.id


@pytest.mark.parametrize("now", [1, 4])
def test_a_replayed_message_gets_the_max_attempts_that_its_queue_has_now(store: Store, now: int) -> None:
    store.queues.put("emails", max_attempts=2)
    ids = [_die(store, **fields) for fields in ({}, {"labels": {"a": "b"}}, {"key": "k"}, {"id": str(uuid.uuid4())})]
    store.queues.put("emails", max_attempts=now)
    assert len(store.replay("emails", ids=ids[:2])) == 2
    assert len(store.replay("emails", where={})) == 2
    for id in ids:
        assert store.get(id).max_attempts == now
    tries = []
    for _ in range(4 * now):
        (lease,) = store.claim("emails")
        store.nack(lease, delay=0)
        tries.append(lease.attempt)
    assert sorted(tries) == sorted([*range(1, now + 1)] * 4)
    assert {store.get(id).reason for id in ids} == {"retries_exhausted"}


def test_a_replayed_message_keeps_the_max_attempts_that_its_publisher_gave(store: Store, harness: Harness) -> None:
    store.queues.put("emails", max_attempts=2)
    same, more = _die(store, max_attempts=2), _die(store, max_attempts=3)
    keyed = store.publish("emails", 1, key="k", max_attempts=1).id
    assert store.publish("emails", 2, key="k").id == keyed, "a new payload, and nothing else"
    store.nack(store.claim("emails")[0])
    plain = _die(store)
    store.queues.put("emails", max_attempts=9)
    assert len(store.replay("emails", ids=[plain, same, more, keyed])) == 4
    store = harness.reopen()
    assert [store.get(id).max_attempts for id in (same, more, keyed, plain)] == [2, 3, 1, 9]


def test_the_attempts_that_a_publisher_gives_are_no_part_of_the_request(store: Store) -> None:
    first = store.publish("emails", 1, idempotency_key="i")
    assert store.publish("emails", 1, idempotency_key="i", max_attempts=7).id == first.id
