"""Readers of the journal: retention removes nothing that one of them has not got, and sooner what it has."""

from tampu import Ack
from tampu.broker import readers
from tampu.broker.queue import Queue
from tampu.broker.readers import Reader
from tests.conformance.house import House, counts, inside

DAY = 86_400


def _end(q: Queue, *payloads: int) -> None:
    q.publish_many("jobs", list(payloads))
    q.settle([Ack(lease) for lease in q.claim("jobs", limit=len(payloads))])


def _register(q: Queue, offset: int, name: str = "lake", archive: float | None = None) -> None:
    after = None if archive is None else round(archive * 1_000_000)
    engine = inside(q).engine
    engine.run([readers.saving(Reader(name, {_partition(q): offset}, engine.now(), after))])


def _partition(q: Queue) -> str:
    """The one that the journal of these tests has."""
    (name,) = q.journal(limit=1).latest or {"0": 0}
    return name


def _end_of_journal(q: Queue) -> int:
    return q.journal(limit=1).latest[_partition(q)]


def test_what_a_reader_has_not_got_stays_however_old(q: Queue, house: House) -> None:
    _register(q, 0)
    _end(q, 1, 2)
    house.clock.advance(30 * DAY)
    with house.unchanged(q):
        house.trim(journal=60)


def test_what_a_reader_has_goes_with_its_time(q: Queue, house: House) -> None:
    _end(q, 1, 2)
    _register(q, _end_of_journal(q))
    house.clock.advance(2 * DAY)
    house.trim(journal=60)
    assert counts(q, "jobs") == {}
    assert q.journal().transitions == []


def test_a_message_that_ended_past_the_position_stays_when_older_ones_go(q: Queue, house: House) -> None:
    _end(q, 1)
    house.trim()
    _register(q, _end_of_journal(q))
    house.trim()
    _end(q, 2)
    house.clock.advance(2 * DAY)
    house.trim(journal=60)
    assert [m.payload for m in q.messages("jobs", state="done")] == [2]
    assert {t.verb for t in q.journal().transitions} == {"publish", "claim", "ack"}


def test_a_clock_that_was_set_back_does_not_make_an_unread_end_look_old(q: Queue, house: House) -> None:
    house.clock.advance(10 * DAY)
    _end(q, 1)
    _register(q, _end_of_journal(q))
    house.trim()
    house.clock.advance(-5 * DAY)
    _end(q, 2)
    house.clock.advance(20 * DAY)
    house.trim(journal=60)
    assert [m.payload for m in q.messages("jobs", state="done")] == [2]


def test_a_record_that_was_read_in_part_stays_whole(q: Queue, house: House) -> None:
    q.publish_many("jobs", [1, 2, 3])
    _register(q, 2)
    house.clock.advance(DAY)
    house.trim(journal=60)
    assert len(q.journal().transitions) == 3


def test_a_reader_that_moves_on_lets_go_step_by_step(q: Queue, house: House) -> None:
    left = []
    for turn in range(4):
        _end(q, turn)
        _register(q, _end_of_journal(q) - 1)  # never quite at the end
        house.clock.advance(2 * DAY)
        house.trim(journal=60)
        left.append([m.payload for m in q.messages("jobs", state="done")])
    assert all(turn in kept for turn, kept in enumerate(left))
    assert left[-1][0] > 0


def test_the_slowest_of_several_readers_counts(q: Queue, house: House) -> None:
    _end(q, 1)
    _register(q, _end_of_journal(q), "fast")
    _register(q, 0, "slow")
    house.clock.advance(2 * DAY)
    with house.unchanged(q):
        house.trim(journal=60)
    inside(q).engine.run([readers.forgetting("slow")])
    house.trim(journal=60)
    assert counts(q, "jobs") == {}


def test_a_reader_that_joins_late_protects_what_is_still_there(q: Queue, house: House) -> None:
    _end(q, 1)
    _register(q, _end_of_journal(q))
    house.trim()
    _register(q, 0, "new")
    house.clock.advance(2 * DAY)
    with house.unchanged(q):
        house.trim(journal=60)


def test_an_archiving_reader_lets_messages_go_before_their_retention(q: Queue, house: House) -> None:
    q.queues.put("jobs", retention=30 * DAY)
    _end(q, 1)
    _register(q, _end_of_journal(q), archive=3600)
    house.clock.advance(3599)
    house.trim()
    assert counts(q, "jobs") == {"done": 1}
    _end(q, 2)
    house.clock.advance(3600)
    house.trim()
    assert [m.payload for m in q.messages("jobs", state="done")] == [2], "the reader has not got this one"


def test_archiving_never_keeps_longer_than_retention(q: Queue, house: House) -> None:
    q.queues.put("jobs", retention=60)
    _end(q, 1)
    _register(q, _end_of_journal(q), archive=30 * DAY)
    house.clock.advance(61)
    house.trim()
    assert counts(q, "jobs") == {}
