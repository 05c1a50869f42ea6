"""Messages lie in blocks by the time they were published; nobody can tell from outside, also not in older stores."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import tampu
from tampu.broker import access
from tampu.engines.port import Trim
from tests.conformance.harness import FakeClock, payloads
from tests.servers import redis

FULL = 7000
"""After so many messages a block is left for the next."""


class Jobs:
    """A queue, its clock, and its keys as a plain client sees them."""

    def __init__(self, url: str) -> None:
        self.clock = FakeClock()
        self.store = tampu.open(url, maintenance=False, clock=self.clock)
        self.client = redis.redis.server.client()
        self.tag = f"{{{url.partition('prefix=')[2]}:default:jobs}}"

    def publish(self, count: int = 1, start: int = 0) -> list[Any]:
        """A millisecond later than what came before."""
        self.clock.advance(0.001)
        return self.store.publish_many("jobs", list(range(start, start + count)))

    def blocks(self) -> list[int]:
        """How many messages each has."""
        names = self.client.zrange(f"{self.tag}:blocks", 0, -1)
        return [self.client.hlen(f"{self.tag}:m:{name.decode()}") for name in names]

    def hashes(self) -> int:
        """How many there are of `m` and `x`."""
        return sum(len(list(self.client.scan_iter(f"{self.tag}:{name}*", count=10_000))) for name in "mx")

    def trim(self) -> None:
        self.clock.advance(1)
        access.core(self.store).coalescer.submit(Trim({}, 0, 0, 100_000))

    def well(self) -> bool:
        return [level for what, level, _ in self.store.check() if what == "indexes"] == ["ok"]


@pytest.fixture
def jobs(url: str) -> Iterator[Jobs]:
    made = Jobs(url)
    yield made
    made.store.close()
    made.client.close()


def _work(store: tampu.Store, count: int) -> list[Any]:
    found: list[Any] = []
    while len(found) < count and (leases := store.claim("jobs", limit=min(10_000, count - len(found)))):
        store.settle([tampu.Ack(lease) for lease in leases])
        found += payloads(leases)
    return found


def test_a_full_block_is_left_for_the_next(jobs: Jobs) -> None:
    jobs.publish(FULL - 1)
    jobs.publish(2, FULL - 1)
    jobs.publish(3, FULL + 1)
    assert jobs.blocks() == [FULL + 1, 3]
    assert _work(jobs.store, 2 * FULL) == list(range(FULL + 4))
    assert jobs.well()


def test_messages_of_one_millisecond_are_in_one_block(jobs: Jobs) -> None:
    jobs.publish(FULL - 1)
    jobs.clock.advance(0.001)
    for n in range(4):  # the second of these is one too many for the block
        jobs.store.publish("jobs", n)
    jobs.store.publish_many("jobs", [tampu.NewMessage(n, key=str(n)) for n in range(4)])
    assert jobs.blocks() == [FULL + 7]
    jobs.publish()
    assert jobs.blocks() == [FULL + 7, 1]


def test_one_call_with_many_messages_begins_a_block_at_most_once(jobs: Jobs) -> None:
    jobs.publish(FULL - 1)
    jobs.clock.advance(0.001)
    jobs.store.publish_many("jobs", [tampu.NewMessage(n, delay=60) for n in range(FULL)])
    assert jobs.blocks() == [2 * FULL - 1]
    jobs.clock.advance(0.001)
    sent = jobs.store.publish_many("jobs", [tampu.NewMessage(n, priority=1) for n in range(FULL + 5)])
    assert jobs.blocks() == [2 * FULL - 1, FULL + 5]
    assert [jobs.store.get(sent[n].id).payload for n in (0, -1)] == [0, FULL + 4]


def test_what_is_gone_takes_its_block_along(jobs: Jobs) -> None:
    jobs.publish(FULL)
    jobs.publish(FULL)
    jobs.publish(3)
    _work(jobs.store, 2 * FULL)
    jobs.trim()
    assert (jobs.blocks(), jobs.hashes()) == ([3], 1)
    _work(jobs.store, 3)
    jobs.trim()
    assert (jobs.blocks(), jobs.hashes()) == ([0], 0)
    sent = jobs.publish(FULL)  # the empty one is filled up
    assert jobs.blocks() == [FULL]
    jobs.store.purge("jobs", state="ready")
    last = jobs.publish(2)
    assert jobs.blocks() == [2], "one that was empty when it was left is forgotten then"
    assert jobs.store.get(last[1].id).payload == 1
    with pytest.raises(tampu.NotFound):
        jobs.store.get(sent[0].id)
    assert jobs.well()


def test_another_ordering_finds_the_messages_of_all_blocks(jobs: Jobs) -> None:
    for n in range(3):
        jobs.publish(FULL, n * FULL)
        jobs.clock.advance(0.001)
        jobs.store.publish("jobs", f"first {n}", priority=9)
    jobs.store.queues.put("jobs", ordering="priority")
    assert jobs.blocks() == [FULL, FULL + 1, FULL + 1, 1]
    assert payloads(jobs.store.claim("jobs", limit=5)) == ["first 0", "first 1", "first 2", 0, 1]


def _as_layout_3(jobs: Jobs) -> None:
    """As a store looks that older code has written: one hash."""
    for name in jobs.client.zrange(f"{jobs.tag}:blocks", 0, -1):
        for end in "mx":
            key = f"{jobs.tag}:{end}:{name.decode()}"
            jobs.client.hset(f"{jobs.tag}:{end}", mapping=jobs.client.hgetall(key))
            jobs.client.delete(key)
    jobs.client.delete(f"{jobs.tag}:blocks")
    jobs.client.hdel(f"{jobs.tag}:n", "block", "size")


def test_a_store_of_one_hash_goes_on(jobs: Jobs) -> None:
    old = jobs.publish(10)
    leased, *_ = jobs.store.claim("jobs", limit=2)
    dead = jobs.store.publish("jobs", "dead", priority=-1)
    _as_layout_3(jobs)
    same = jobs.store.publish("jobs", "same millisecond")
    assert jobs.blocks() == []
    jobs.publish(5, 10)
    assert jobs.blocks() == [5]
    assert jobs.store.get(same.id).payload == "same millisecond"
    assert jobs.store.cancel(old[9].id)[0].ok
    jobs.store.nack(leased, error="boom", delay=0)
    jobs.store.queues.put("jobs", ordering="priority")
    found = jobs.store.claim("jobs", limit=100)
    assert payloads(found) == [*range(2, 9), "same millisecond", *range(10, 15), 0, "dead"]
    jobs.store.settle([tampu.Reject(lease) if lease.message.id == dead.id else tampu.Ack(lease) for lease in found])
    jobs.store.replay("jobs", ids=[dead.id])
    assert jobs.well()
    assert jobs.store.purge("jobs", state="ready") == 1
    jobs.clock.advance(60)
    jobs.store.claim("jobs")  # the other lease has run out
    jobs.trim()
    assert jobs.well()
