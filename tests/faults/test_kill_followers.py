"""Processes that follow the journal are killed at random moments: each transition has its effects exactly once."""

from __future__ import annotations

import random
import time
from collections import Counter
from pathlib import Path

import pytest

import tampu
from tampu.broker import access, followers
from tampu.broker.journal_cursor import JournalCursor
from tampu.maintenance.follower import Follower
from tampu.model.journal import Transition
from tests.conformance.harness import until
from tests.faults.crew import Count, Nursery
from tests.faults.test_kill_units import URLS

PROCESSES = 3
ROUNDS = 6


@pytest.mark.parametrize("engine", ["file", "postgres", "mariadb", "redis", "cluster"])
def test_what_killed_followers_do_is_there_once(tmp_path: Path, logs: Path, seed: int, long: int, engine: str) -> None:
    rng = random.Random(seed)
    url = URLS[engine](tmp_path)
    ids: list[str] = []
    with tampu.open(url, maintenance=False) as store, Nursery(url, logs) as nursery:
        with followers.registered(Count()):
            Follower(access.core(store)).turn()  # it begins here
        for _ in range(PROCESSES):
            nursery.start("follow")
        for _ in range(ROUNDS * long):
            for _ in range(3):
                ids += publish(store, rng.randint(1, 10))
                time.sleep(rng.uniform(0.005, 0.15))  # noqa: TID251 - a kill at any moment is what is tested
            for pid in rng.sample(nursery.living, rng.choice((1, 2, PROCESSES))):
                nursery.kill(pid)
                nursery.start("follow")

        def over() -> bool:
            return all(one.behind == 0 and one.status == "active" for one in store.followers.list())

        until(over)
        until(lambda: store.stats("out").ready >= len(ids))
        found = list(store.messages("out", limit=10_000))
        assert sorted(m.payload for m in found) == sorted(ids)
        counted = access.engine(store).document("count", "default", "in")
        assert counted is not None
        assert int(counted.value) == len(ids)
        until(lambda: not store.stats("spare").ready and not store.stats("held").held)
        assert (store.stats("spare").cancelled, store.stats("held").ready) == (len(ids), len(ids))
        moves = Counter((moved.queue, moved.verb, moved.id) for moved in journal(store))
        once = Counter((queue, verb) for queue, verb, _ in moves if verb in ("cancel", "free"))
        assert once == {("spare", "cancel"): len(ids), ("held", "free"): len(ids)}
        assert set(moves.values()) == {1}


def publish(store: tampu.Store, count: int) -> list[str]:
    """Messages for the followers, each with one to cancel and one to free; the ids of the first ones."""
    spare = store.publish_many("spare", range(count))
    held = store.publish_many("held", [tampu.NewMessage(n, hold="until a follower frees it") for n in range(count)])
    payloads = [{"cancel": one.id, "free": other.id} for one, other in zip(spare, held, strict=True)]
    return [m.id for m in store.publish_many("in", payloads)]


def journal(store: tampu.Store) -> list[Transition]:
    cursor = JournalCursor(access.engine(store), {}, 1000)
    found = cursor.read()
    while cursor.more:
        found += cursor.read()
    return found
