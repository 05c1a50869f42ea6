"""Batches are one member of the ready index until somebody takes a part; nobody can tell from outside."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

import tampu
from tests.conformance.harness import payloads
from tests.servers import redis


@pytest.fixture
def store(url: str) -> Iterator[tampu.Store]:
    with tampu.open(url, maintenance=False) as opened:
        yield opened


def _members(url: str) -> list[str]:
    prefix = url.partition("prefix=")[2]
    with redis.redis.server.client() as client:
        return [member.decode()[32:] for member in client.zrange(f"{{{prefix}:default:jobs}}:ready", 0, -1)]


def _shown(store: tampu.Store) -> list[Any]:
    return [message.payload for message in store.messages("jobs", state="ready", limit=1000)]


def test_a_batch_is_one_member_and_a_claim_cuts_off_its_front(store: tampu.Store, url: str) -> None:
    store.publish_many("jobs", list(range(100)))
    assert _members(url) == ["*100"]
    assert payloads(store.claim("jobs", limit=30)) == list(range(30))
    assert _members(url) == ["*70"]
    assert store.stats("jobs").ready == 70
    assert payloads(store.claim("jobs", limit=69)) == list(range(30, 99))
    assert _members(url) == [""]
    assert payloads(store.claim("jobs", limit=5)) == [99]
    assert _members(url) == []


def test_a_claim_takes_from_several_runs(store: tampu.Store, url: str) -> None:
    store.publish_many("jobs", [1, 2, 3])
    store.publish("jobs", 4)
    store.publish_many("jobs", [5, 6, 7])
    assert payloads(store.claim("jobs", limit=5)) == [1, 2, 3, 4, 5]
    assert _members(url) == ["*2"]


@pytest.mark.parametrize(("which", "left"), [(0, ["*4"]), (4, ["*4"]), (2, ["*2", "*2"]), (1, ["", "*3"])])
def test_a_cancel_cuts_around_one_message(store: tampu.Store, url: str, which: int, left: list[str]) -> None:
    sent = store.publish_many("jobs", list(range(5)))
    store.cancel(sent[which].id)
    assert _members(url) == left
    assert store.stats("jobs").ready == 4
    assert payloads(store.claim("jobs", limit=5)) == [n for n in range(5) if n != which]


def test_another_rank_takes_a_message_out_of_its_run(store: tampu.Store, url: str) -> None:
    store.publish_many("jobs", [1, 2, 3])
    store.publish("jobs", 4, priority=5)
    store.queues.put("jobs", ordering="priority")
    assert _shown(store) == [4, 1, 2, 3]
    store.queues.put("jobs", ordering="fifo")
    assert _shown(store) == [1, 2, 3, 4]


def test_pages_start_in_the_middle_of_a_run(store: tampu.Store) -> None:
    store.publish_many("jobs", list(range(10)))
    store.publish_many("jobs", list(range(10, 20)))
    found: list[Any] = []
    cursor = None
    while True:
        page = store.messages("jobs", state="ready", limit=3, after=cursor)
        found += [message.payload for message in page]
        cursor = page.cursor
        if cursor is None:
            break
        if len(found) == 6:
            store.claim("jobs", limit=2)  # what a page starts after may be gone
    assert found == list(range(20))


def test_runs_behave_as_the_embedded_engine_does(store: tampu.Store, seed: int) -> None:
    chance = random.Random(seed)
    with tampu.open("memory://", maintenance=False) as other:
        sides = (store, other)
        for side in sides:
            side.queues.put("jobs")
        sent: list[list[str]] = [[], []]
        leases: list[list[Any]] = [[], []]
        for step in range(120):
            what = chance.choice(("publish", "publish", "claim", "cancel", "release", "ack", "purge", "pages"))
            size, pick = chance.randint(1, 12), chance.random()
            for side, ids, held in zip(sides, sent, leases, strict=True):
                if what == "publish":
                    ids.extend(m.id for m in side.publish_many("jobs", [f"{step}.{n}" for n in range(size)]))
                elif what == "claim":
                    held.extend(side.claim("jobs", limit=size))
                elif what == "cancel" and ids:
                    side.cancel(ids[int(pick * len(ids))])
                elif what in ("release", "ack") and held:
                    lease = held.pop(int(pick * len(held)))
                    side.settle([tampu.Release(lease) if what == "release" else tampu.Ack(lease)])
                elif what == "purge" and step % 5 == 0:
                    side.purge("jobs", state="ready")
            assert payloads(leases[0]) == payloads(leases[1])
            assert _shown(store) == _shown(other)
            assert store.stats("jobs").counts == other.stats("jobs").counts
    assert [level for what, level, _ in store.check() if what == "indexes"] == ["ok"]
