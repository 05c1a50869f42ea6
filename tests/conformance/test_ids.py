"""Ids that the store makes: they find their message, and one that is known says nothing of others."""

import uuid

import pytest

from tampu import Ack, NewMessage, NotFound
from tampu.broker.store import Store
from tests.conformance.harness import Harness


def _guesses(id: str) -> list[str]:
    """Ids as somebody would guess them from one that is known: its number a bit higher or lower, the rest as it is.

    Where the number of a message is in its id differs between engines: at bit 22 or 54. Clients count at bit 0.
    """
    known = uuid.UUID(id).int
    return [str(uuid.UUID(int=known + (n << bit))) for bit in (0, 22, 54) for n in range(-40, 41) if n]


def _exists(store: Store, id: str) -> bool:
    try:
        store.get(id)
    except NotFound:
        return False
    return True


def test_the_neighbours_of_a_known_id_cannot_be_guessed(store: Store) -> None:
    ids = [message.id for message in store.publish_many("jobs", range(30))]
    ids += [message.id for message in store.publish_many("jobs", [NewMessage(n, key=str(n)) for n in range(30)])]
    for known in (ids[15], ids[-15]):
        assert [id for id in _guesses(known) if _exists(store, id)] == []


def _tails(store: Store, messages: int) -> list[str]:
    """The last 20 bits of ids: on every engine they belong to the secret part."""
    return [message.id[-5:] for message in store.publish_many("jobs", range(messages))]


def test_the_end_of_an_id_says_nothing_of_the_end_of_a_later_one(store: Store, harness: Harness) -> None:
    """Engines compute the ends of 128 or 256 ids at once: those of the next ones are others."""
    ends = _tails(store, 600)
    for later in (128, 256):
        assert sum(one == other for one, other in zip(ends, ends[later:], strict=False)) < 10
    alone = []
    for _ in range(20):
        alone += _tails(store, 1)
        harness.clock.advance(1)
    assert len(set(alone)) > 10


def test_a_guess_is_an_id_like_any_other(store: Store) -> None:
    """Publishing with it takes no message's id away, now or later."""
    known = store.publish("jobs", "known").id
    guesses = _guesses(known)
    stored = store.publish_many("other", [NewMessage(n, id=id) for n, id in enumerate(guesses)])
    assert not any(message.duplicate for message in stored)
    later = [message.id for message in store.publish_many("jobs", range(100))]
    assert len({known, *later, *guesses}) == 101 + len(guesses)
    assert [store.get(id).queue for id in (known, later[0], guesses[0])] == ["jobs", "jobs", "other"]


def test_every_way_to_a_message_says_the_same_id(store: Store) -> None:
    ids = [message.id for message in store.publish_many("jobs", range(300))]
    assert [message.id for message in store.messages("jobs", limit=1000)] == ids
    leases = store.claim("jobs", limit=200) + store.claim("jobs", limit=100)
    assert [lease.id for lease in leases] == ids
    assert [outcome.id for outcome in store.settle([Ack(lease) for lease in leases[:3]])] == ids[:3]
    assert sorted({t.id for t in store.journal(limit=10_000).transitions}) == ids
    assert all(store.get(id).id == id for id in (ids[0], ids[127], ids[128], ids[299]))


@pytest.mark.parametrize("version", [1, 4, 7])
def test_an_id_of_nobody_is_not_found(store: Store, version: int) -> None:
    store.publish("jobs", 1)
    assert not _exists(store, f"01234567-89ab-{version}def-8123-456789abcdef")
