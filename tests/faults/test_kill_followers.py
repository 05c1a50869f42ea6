"""Processes that follow the journal are killed at random moments: each transition has its effects exactly once."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

import tampu
from tampu.broker import access, followers
from tampu.maintenance.follower import Follower
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
                ids += [m.id for m in store.publish_many("in", range(rng.randint(1, 10)))]
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
