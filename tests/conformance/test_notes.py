"""Notes: the lease of a message writes its note, and the note of no other message."""

import uuid

import pytest

from tampu import LeaseLost
from tampu.broker import access
from tampu.broker.store import Store
from tampu.model.message import Lease


def write(store: Store, id: str, lease: Lease, note: object) -> None:
    access.run(store, access.verbs(store).write_note(id, lease.receipt, note, 60))


def read(store: Store, id: str) -> object:
    return access.run(store, access.verbs(store).read_note(id))


@pytest.mark.parametrize("given", [False, True], ids=["ids of the store", "ids of the user"])
def test_a_lease_writes_the_note_of_its_own_message_only(store: Store, given: bool) -> None:
    for n in range(3):
        store.publish("jobs", n, id=str(uuid.uuid4()) if given else None)
    mine, other = store.claim("jobs", limit=2, lease=10)
    (waiting,) = store.messages("jobs", state="ready").messages
    elsewhere = store.publish("others", 1, id=str(uuid.uuid4()) if given else None)
    for id in (other.id, waiting.id, elsewhere.id):
        with pytest.raises(LeaseLost):
            write(store, id, mine, "stolen")
        assert read(store, id) is None
    write(store, mine.id, mine, {"cursor": 7})
    write(store, other.id, other, {"cursor": 8})
    assert (read(store, mine.id), read(store, other.id)) == ({"cursor": 7}, {"cursor": 8})


def test_a_lease_that_was_settled_writes_no_note(store: Store) -> None:
    store.publish("jobs", 1)
    (lease,) = store.claim("jobs")
    store.nack(lease, delay=0)
    with pytest.raises(LeaseLost):
        write(store, lease.id, lease, "late")
    (again,) = store.claim("jobs")
    with pytest.raises(LeaseLost):
        write(store, again.id, lease, "late")
    assert read(store, again.id) is None
