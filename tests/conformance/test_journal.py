"""The journal: exactly one transition per move, in order, readable from anywhere."""

import pytest

from tampu import Ack, InvalidMessage, Nack, NewMessage, Reject, Release, State
from tampu.broker.queue import Queue
from tests.conformance.house import House, verbs


def test_every_move_is_exactly_one_transition(q: Queue, house: House) -> None:
    q.queues.put("emails", backoff=10)
    message = q.publish("emails", 1, delay=5, type="email.send", max_attempts=2)
    house.clock.advance(5)
    q.release(q.claim("emails", worker="w1")[0])
    q.nack(q.claim("emails", worker="w2")[0], error="boom 17\nmore")
    house.clock.advance(10)
    q.claim("emails", lease=30)
    house.clock.advance(30)
    house.sweep()
    q.replay("emails", ids=[message.id])
    q.ack(q.claim("emails")[0])
    seen = [(t.verb, t.state, t.attempt) for t in q.journal().transitions]
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


def test_a_transition_says_who_what_when_and_why(q: Queue, house: House) -> None:
    message = q.publish("emails", 1, type="email.send")
    house.clock.advance(3)
    q.nack(q.claim("emails", worker="w1")[0], error="boom 17\nmore", delay=1)
    published, claimed, failed = q.journal().transitions
    assert (published.id, published.tenant, published.queue) == (message.id, "default", "emails")
    assert (published.type, published.at) == ("email.send", message.created_at)
    assert (claimed.worker, claimed.at) == ("w1", house.clock.time)
    assert (failed.worker, failed.detail) == ("w1", "boom 17")
    assert failed.fingerprint is not None


def test_errors_that_differ_only_in_numbers_have_one_fingerprint(q: Queue) -> None:
    q.publish_many("emails", range(3))
    for lease, error in zip(q.claim("emails", limit=3), ["user 17 gone", "user 99 gone", "disk full"], strict=True):
        q.nack(lease, error=error)
    one, two, three = [t.fingerprint for t in q.journal().transitions if t.verb == "nack"]
    assert one == two != three


def test_reading_and_extending_write_nothing(q: Queue, house: House) -> None:
    message = q.publish("emails", 1)
    lease = q.claim("emails")[0]
    before = q.journal()
    q.extend(lease, 60)
    q.get(message.id)
    q.messages("emails")
    q.stats("emails")
    q.claim("emails")
    house.sweep()
    assert q.journal() == before


def _history(q: Queue, house: House) -> None:
    """Batches of several sizes, in several verbs and queues."""
    q.publish_many("emails", [NewMessage(n, type=f"t{n % 3}") for n in range(7)])
    q.publish("letters", 1)
    a, b, c, d, *_ = q.claim("emails", limit=6, worker="w")
    q.settle([Ack(a), Nack(b, error="x"), Reject(c, error="y"), Release(d)])
    q.publish_many("letters", range(3))
    house.clock.advance(3600)
    house.sweep()
    q.purge("letters", state="ready")


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 1000])
def test_pages_of_any_size_give_the_same_transitions(q: Queue, house: House, limit: int) -> None:
    _history(q, house)
    whole = q.journal().transitions
    assert len(whole) > 25
    found, position = [], None
    while True:
        page = q.journal(after=position, limit=limit)
        if not page.transitions:
            break
        assert len(page.transitions) <= limit
        found += page.transitions
        position = page.position
    assert found == whole


def test_reading_goes_on_from_any_position_also_within_a_batch(q: Queue, house: House) -> None:
    _history(q, house)
    whole = q.journal().transitions
    position: dict[str, int] = {}
    for n, transition in enumerate(whole):
        position[transition.partition] = transition.offset
        assert q.journal(after=position).transitions == whole[n + 1 :]


def test_a_bare_offset_is_a_position_where_there_is_one_partition(q: Queue, house: House) -> None:
    _history(q, house)
    whole = q.journal().transitions
    if {transition.partition for transition in whole} == {"0"}:
        for n, transition in enumerate(whole):
            assert q.journal(after=transition.offset).transitions == whole[n + 1 :]
    else:
        assert q.journal(after=0).transitions == whole
        with pytest.raises(InvalidMessage):
            q.journal(after=whole[0].offset)


def test_offsets_only_grow_and_the_latest_is_the_last(q: Queue, house: House) -> None:
    _history(q, house)
    page = q.journal()
    for partition, latest in page.latest.items():
        offsets = [t.offset for t in page.transitions if t.partition == partition]
        assert offsets == sorted(set(offsets))
        assert offsets[-1] == latest
    assert page.position == page.latest


def test_a_reader_at_the_end_gets_only_what_is_new(q: Queue) -> None:
    q.publish("emails", 1)
    end = q.journal().position
    assert q.journal(after=end).transitions == []
    assert q.journal(after=end).position == end
    message = q.publish("emails", 2)
    assert [t.id for t in q.journal(after=end).transitions] == [message.id]


def test_the_journal_survives_opening_again(house: House) -> None:
    q = house.open()
    _history(q, house)
    before = q.journal()
    assert house.reopen().journal() == before


def test_refused_calls_write_nothing(q: Queue, house: House) -> None:
    q.queues.put("emails", max_depth=1)
    q.publish("emails", 1)
    end = q.journal().position
    for call in (lambda: q.publish("emails", 2), lambda: q.ack("emails/1.1")):
        with pytest.raises(Exception, match=r".+"):
            call()
    assert q.journal(after=end).transitions == []


def test_own_ids_are_in_the_journal_also_after_removal(q: Queue) -> None:
    own = "2f1e9c1e-7d8c-4c55-9a52-4f1a6a1b2c3d"
    q.publish("emails", 1, id=own)
    q.ack(q.claim("emails")[0])
    q.purge("emails", state="done")
    assert verbs(q, own) == ["publish", "claim", "ack", "purge"]


def test_positions_stay_good_when_old_records_are_trimmed(q: Queue, house: House) -> None:
    q.publish_many("emails", range(5))
    position = q.journal(limit=3).position
    house.clock.advance(3600)
    message = q.publish("emails", "new")
    house.trim(journal=60)
    assert [t.id for t in q.journal(after=position).transitions] == [message.id]
    assert [t.id for t in q.journal().transitions] == [message.id]
    assert q.journal().latest == q.journal().position
