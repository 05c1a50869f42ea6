"""Readers of the journal: retention keeps what one of them has not read, and may remove sooner what all have read."""

from tampu import Ack
from tampu.broker import journal_readers
from tampu.broker.journal_readers import Reader
from tampu.broker.store import Store
from tests.conformance.harness import Harness, counts, inside

DAY = 86_400


def _end(store: Store, *payloads: int) -> None:
    store.publish_many("jobs", list(payloads))
    store.settle([Ack(lease) for lease in store.claim("jobs", limit=len(payloads))])


def _register(store: Store, offset: int, name: str = "lake", archive: float | None = None) -> None:
    after = None if archive is None else round(archive * 1_000_000)
    engine = inside(store).engine
    engine.run([journal_readers.saving(Reader(name, {_partition(store): offset}, engine.now(), after))])


def _partition(store: Store) -> str:
    """The one that the journal of these tests has."""
    (name,) = store.journal(limit=1).latest or {"0": 0}
    return name


def _end_of_journal(store: Store) -> int:
    return store.journal(limit=1).latest[_partition(store)]


def test_what_a_reader_has_not_read_stays_however_old(store: Store, harness: Harness) -> None:
    _register(store, 0)
    _end(store, 1, 2)
    harness.clock.advance(30 * DAY)
    with harness.unchanged(store):
        harness.trim(journal=60)


def test_what_a_reader_has_read_is_removed_after_its_retention(store: Store, harness: Harness) -> None:
    _end(store, 1, 2)
    _register(store, _end_of_journal(store))
    harness.clock.advance(2 * DAY)
    harness.trim(journal=60)
    assert counts(store, "jobs") == {}
    assert store.journal().transitions == []


def test_a_message_that_ended_past_the_position_stays_when_older_ones_go(store: Store, harness: Harness) -> None:
    _end(store, 1)
    harness.trim()
    _register(store, _end_of_journal(store))
    harness.trim()
    _end(store, 2)
    harness.clock.advance(2 * DAY)
    harness.trim(journal=60)
    assert [m.payload for m in store.messages("jobs", state="done")] == [2]
    assert {t.verb for t in store.journal().transitions} == {"publish", "claim", "ack"}


def test_a_clock_that_was_set_back_does_not_make_an_unread_end_look_old(store: Store, harness: Harness) -> None:
    harness.clock.advance(10 * DAY)
    _end(store, 1)
    _register(store, _end_of_journal(store))
    harness.trim()
    harness.clock.advance(-5 * DAY)
    _end(store, 2)
    harness.clock.advance(20 * DAY)
    harness.trim(journal=60)
    assert [m.payload for m in store.messages("jobs", state="done")] == [2]


def test_a_record_that_was_read_in_part_stays_whole(store: Store, harness: Harness) -> None:
    store.publish_many("jobs", [1, 2, 3])
    _register(store, 2)
    harness.clock.advance(DAY)
    harness.trim(journal=60)
    assert len(store.journal().transitions) == 3


def test_what_a_reader_passes_is_removed_step_by_step(store: Store, harness: Harness) -> None:
    left = []
    for turn in range(4):
        _end(store, turn)
        _register(store, _end_of_journal(store) - 1)  # never quite at the end
        harness.clock.advance(2 * DAY)
        harness.trim(journal=60)
        left.append([m.payload for m in store.messages("jobs", state="done")])
    assert all(turn in kept for turn, kept in enumerate(left))
    assert left[-1][0] > 0


def test_the_slowest_of_several_readers_counts(store: Store, harness: Harness) -> None:
    _end(store, 1)
    _register(store, _end_of_journal(store), "fast")
    _register(store, 0, "slow")
    harness.clock.advance(2 * DAY)
    with harness.unchanged(store):
        harness.trim(journal=60)
    inside(store).engine.run([journal_readers.forgetting("slow")])
    harness.trim(journal=60)
    assert counts(store, "jobs") == {}


def test_a_reader_that_joins_late_protects_what_is_still_there(store: Store, harness: Harness) -> None:
    _end(store, 1)
    _register(store, _end_of_journal(store))
    harness.trim()
    _register(store, 0, "new")
    harness.clock.advance(2 * DAY)
    with harness.unchanged(store):
        harness.trim(journal=60)


def test_an_archiving_reader_lets_messages_go_before_their_retention(store: Store, harness: Harness) -> None:
    store.queues.put("jobs", retention=30 * DAY)
    _end(store, 1)
    _register(store, _end_of_journal(store), archive=3600)
    harness.clock.advance(3599)
    harness.trim()
    assert counts(store, "jobs") == {"done": 1}
    _end(store, 2)
    harness.clock.advance(3600)
    harness.trim()
    assert [m.payload for m in store.messages("jobs", state="done")] == [2], "the reader has not got this one"


def test_archiving_never_keeps_longer_than_retention(store: Store, harness: Harness) -> None:
    store.queues.put("jobs", retention=60)
    _end(store, 1)
    _register(store, _end_of_journal(store), archive=30 * DAY)
    harness.clock.advance(61)
    harness.trim()
    assert counts(store, "jobs") == {}
