"""The journal: exactly one transition per move, in order, readable from anywhere."""

import pytest

from tampu import Ack, InvalidMessage, Nack, NewMessage, Reject, Release, State
from tampu.broker.store import Store
from tests.conformance.harness import Harness, verbs


def test_every_move_is_exactly_one_transition(store: Store, harness: Harness) -> None:
    store.queues.put("emails", backoff=10)
    message = store.publish("emails", 1, delay=5, type="email.send", max_attempts=2)
    harness.clock.advance(5)
    store.release(store.claim("emails", worker="w1")[0])
    store.nack(store.claim("emails", worker="w2")[0], error="boom 17\nmore")
    harness.clock.advance(10)
    store.claim("emails", lease=30)
    harness.clock.advance(30)
    harness.sweep()
    store.replay("emails", ids=[message.id])
    store.ack(store.claim("emails")[0])
    seen = [(t.verb, t.state, t.attempt) for t in store.journal().transitions]
    assert seen == [
        ("publish", State.DELAYED, 0),
        ("promote", State.READY, 0),
        ("claim", State.LEASED, 1),
        ("release", State.READY, 0),
        ("claim", State.LEASED, 1),
        ("nack", State.DELAYED, 1),
        ("promote", State.READY, 1),
        ("claim", State.LEASED, 2),
        ("reap", State.DEAD, 2),
        ("replay", State.READY, 0),
        ("claim", State.LEASED, 1),
        ("ack", State.DONE, 1),
    ]


def test_a_transition_has_the_worker_verb_time_and_reason(store: Store, harness: Harness) -> None:
    message = store.publish("emails", 1, type="email.send")
    harness.clock.advance(3)
    store.nack(store.claim("emails", worker="w1")[0], error="boom 17\nmore", delay=1)
    published, claimed, failed = store.journal().transitions
    assert (published.id, published.tenant, published.queue) == (message.id, "default", "emails")
    assert (published.type, published.at) == ("email.send", message.created_at)
    assert (claimed.worker, claimed.at) == ("w1", harness.clock.time)
    assert (failed.worker, failed.detail) == ("w1", "boom 17")
    assert failed.fingerprint is not None


def test_errors_that_differ_only_in_numbers_have_one_fingerprint(store: Store) -> None:
    store.publish_many("emails", range(3))
    for lease, error in zip(store.claim("emails", limit=3), ["user 17 gone", "user 99 gone", "disk full"], strict=True):
        store.nack(lease, error=error)
    one, two, three = [t.fingerprint for t in store.journal().transitions if t.verb == "nack"]
    assert one == two != three


def test_reading_and_extending_write_nothing(store: Store, harness: Harness) -> None:
    message = store.publish("emails", 1)
    lease = store.claim("emails")[0]
    before = store.journal()
    store.extend(lease, 60)
    store.get(message.id)
    store.messages("emails")
    store.stats("emails")
    store.claim("emails")
    harness.sweep()
    assert store.journal() == before


def _history(store: Store, harness: Harness) -> None:
    """Batches of several sizes, in several verbs and queues."""
    store.publish_many("emails", [NewMessage(n, type=f"t{n % 3}") for n in range(7)])
    store.publish("letters", 1)
    a, b, c, d, *_ = store.claim("emails", limit=6, worker="w")
    store.settle([Ack(a), Nack(b, error="x"), Reject(c, error="y"), Release(d)])
    store.publish_many("letters", range(3))
    harness.clock.advance(3600)
    harness.sweep()
    store.purge("letters", state="ready")


def test_pages_of_any_size_give_the_same_transitions(store: Store, harness: Harness) -> None:
    _history(store, harness)
    whole = store.journal().transitions
    assert len(whole) > 25
    for limit in (1, 2, 3, 5, 1000):
        found, position = [], None
        while True:
            page = store.journal(after=position, limit=limit)
            if not page.transitions:
                break
            assert len(page.transitions) <= limit
            found += page.transitions
            position = page.position
        assert found == whole, limit


def test_reading_continues_from_any_position_also_within_a_batch(store: Store, harness: Harness) -> None:
    _history(store, harness)
    whole = store.journal().transitions
    position: dict[str, int] = {}
    for n, transition in enumerate(whole):
        position[transition.partition] = transition.offset
        assert store.journal(after=position).transitions == whole[n + 1 :]


def test_an_offset_alone_is_a_position_where_there_is_one_partition(store: Store, harness: Harness) -> None:
    _history(store, harness)
    whole = store.journal().transitions
    if {transition.partition for transition in whole} == {"0"}:
        for n, transition in enumerate(whole):
            assert store.journal(after=transition.offset).transitions == whole[n + 1 :]
    else:
        assert store.journal(after=0).transitions == whole
        with pytest.raises(InvalidMessage):
            store.journal(after=whole[0].offset)


def test_offsets_only_grow_and_the_latest_is_the_last(store: Store, harness: Harness) -> None:
    _history(store, harness)
    page = store.journal()
    for partition, latest in page.latest.items():
        offsets = [t.offset for t in page.transitions if t.partition == partition]
        assert offsets == sorted(set(offsets))
        assert offsets[-1] == latest
    assert page.position == page.latest


def test_a_reader_at_the_end_gets_only_what_is_new(store: Store) -> None:
    store.publish("emails", 1)
    end = store.journal().position
    assert store.journal(after=end).transitions == []
    assert store.journal(after=end).position == end
    message = store.publish("emails", 2)
    assert [t.id for t in store.journal(after=end).transitions] == [message.id]


def test_the_journal_survives_opening_again(harness: Harness) -> None:
    store = harness.open()
    _history(store, harness)
    before = store.journal()
    assert harness.reopen().journal() == before


def test_refused_calls_write_nothing(store: Store, harness: Harness) -> None:
    store.queues.put("emails", max_depth=1)
    store.publish("emails", 1)
    end = store.journal().position
    for call in (lambda: store.publish("emails", 2), lambda: store.ack("emails/1.1")):
        with pytest.raises(Exception, match=r".+"):
            call()
    assert store.journal(after=end).transitions == []


def test_own_ids_are_in_the_journal_also_after_removal(store: Store) -> None:
    own = "2f1e9c1e-7d8c-4c55-9a52-4f1a6a1b2c3d"
    store.publish("emails", 1, id=own)
    store.ack(store.claim("emails")[0])
    store.purge("emails", state="done")
    assert verbs(store, own) == ["publish", "claim", "ack", "purge"]


def test_positions_stay_good_when_old_records_are_trimmed(store: Store, harness: Harness) -> None:
    store.publish_many("emails", range(5))
    position = store.journal(limit=3).position
    harness.clock.advance(3600)
    message = store.publish("emails", "new")
    harness.trim(journal=60)
    assert [t.id for t in store.journal(after=position).transitions] == [message.id]
    assert [t.id for t in store.journal().transitions] == [message.id]
    assert store.journal().latest == store.journal().position
