"""What the machine found once, kept as short stories."""

from pathlib import Path

import tampu
from tampu.broker import access
from tests.model.machine import FakeClock


def last_state(store: tampu.Store, id: str) -> str | None:
    return [transition.state for transition in store.journal().transitions if transition.id == id][-1]


def test_a_message_that_moves_twice_in_a_commit_ends_in_the_journal_where_it_ended():
    with tampu.open("memory://", maintenance=False, clock=FakeClock()) as store:
        store.queues.put("grouped", group_order=True)
        first, second = (store.publish("grouped", n, group="g") for n in range(2))
        store.cancel(first.id, second.id)
        assert store.get(second.id).state == last_state(store, second.id) == "cancelled"


def test_a_message_reaped_and_expired_by_one_claim_ends_in_the_journal_as_expired():
    clock = FakeClock()
    with tampu.open("memory://", maintenance=False, clock=clock) as store:
        leased = store.publish("jobs", 1, ttl=5)
        store.claim("jobs", lease=10)
        store.publish("jobs", 2, ttl=5)
        clock.at += 20_000_000
        assert store.claim("jobs") == []
        assert store.get(leased.id).state == last_state(store, leased.id) == "expired"


def test_a_lease_extended_longer_and_shorter_still_runs_out():
    clock = FakeClock()
    with tampu.open("memory://", maintenance=False, clock=clock) as store:
        store.publish_many("jobs", [1, 2])
        a, b = store.claim("jobs", limit=2, lease=10)
        for lease, by in ((b, 30), (b, 20), (a, 50), (b, 40)):
            store.extend(lease, by)
        for _ in range(5):
            clock.at += 10_000_000
            access.core(store).coalescer.submit(tampu.engines.port.Sweep(1000))
        assert store.stats("jobs").leased == 0


def test_a_file_whose_making_was_interrupted_opens(tmp_path: Path):
    """A kill while the file is made leaves the first page and the journal that undoes it."""
    path = tmp_path / "jobs.db"
    path.write_bytes(b"SQLite format 3\0".ljust(4096, b"\0"))
    head = bytes.fromhex("d9d505f920a163d7") + bytes(12) + (512).to_bytes(4, "big") + (4096).to_bytes(4, "big")
    Path(f"{path}-journal").write_bytes(head.ljust(512, b"\0"))
    with tampu.open(path, maintenance=False) as store:
        store.publish("jobs", 1)
        assert store.stats("jobs").ready == 1
