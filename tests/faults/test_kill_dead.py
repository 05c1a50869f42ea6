"""Processes that carry on replays and copy dead letters are killed at random moments: both happen exactly once."""

from __future__ import annotations

import random
import time
from collections import Counter
from pathlib import Path

import pytest

import tampu
from tests.conformance.harness import until
from tests.faults.crew import Nursery
from tests.faults.test_kill_followers import journal
from tests.faults.test_kill_units import URLS

PROCESSES = 2
ROUNDS = 3
MESSAGES = 40


@pytest.mark.parametrize("engine", ["file", "postgres", "redis"])
def test_killed_processes_replay_and_copy_each_dead_letter_once(
    tmp_path: Path, logs: Path, seed: int, long: int, engine: str
) -> None:
    rng = random.Random(seed)
    url = URLS[engine](tmp_path)
    with tampu.open(url, maintenance=False) as store, Nursery(url, logs) as nursery:
        store.queues.put("in", dead_letter_to="desk", max_attempts=1)
        ids = [message.id for message in store.publish_many("in", range(MESSAGES))]
        for _ in range(PROCESSES):
            nursery.start("keep")
        while leases := store.claim("in", limit=5):
            store.settle([tampu.Nack(lease, error="no") for lease in leases])
        replay = store.dead.replay(queue="in", rate=20)
        for _ in range(ROUNDS * long):
            time.sleep(rng.uniform(0.1, 0.6))  # noqa: TID251 - a kill at any moment is what is tested
            for pid in rng.sample(nursery.living, rng.choice((1, PROCESSES))):
                nursery.kill(pid)
                nursery.start("keep")
        until(lambda: store.dead.get(replay.id or "").status == "done")
        until(lambda: all(one.behind == 0 for one in store.followers.list()))
        until(lambda: not store.stats("desk").ready)  # each replay ends the copy
        assert store.dead.get(replay.id or "").count == MESSAGES
        moves = Counter((moved.queue, moved.verb, moved.id) for moved in journal(store))
        assert {id: moves["in", "replay", id] for id in ids} == dict.fromkeys(ids, 1)
        copies = list(store.messages("desk", limit=1000))
        assert len({message.headers["tampu-dead-id"] for message in copies}) == len(copies)
        assert store.stats("in").ready == MESSAGES
