"""Workers and followers are killed at random moments: each member of a flow is freed once, with all results."""

from __future__ import annotations

import random
import time
from collections import Counter
from pathlib import Path

import pytest

import tampu
from tampu import FlowMember, NewMessage
from tests.conformance.harness import until
from tests.faults.crew import Nursery
from tests.faults.test_kill_followers import journal
from tests.faults.test_kill_units import URLS

PROCESSES = 3
WIDE = 60
LAST = 5
KILLS = 3


def members(wide: int) -> list[FlowMember]:
    """Parts, a join of them, some members that wait for the join, and a join of these."""
    made = [FlowMember(queue="parts", message=NewMessage(n)) for n in range(wide)]
    made.append(FlowMember(queue="joins", message=NewMessage(None), after=[(0, wide)], into=""))
    made += [FlowMember(queue="parts", message=NewMessage(None), after=[wide], into="", many=True) for _ in range(LAST)]
    made.append(FlowMember(queue="joins", message=NewMessage(None), after=[(wide + 1, LAST)], into=""))
    return made


def weave(url: str, logs: Path, rng: random.Random, wide: int, kills: int) -> None:
    """Publish a flow, and kill who works on it until it is done; each member was freed once."""
    with tampu.open(url, maintenance=False) as store:
        for queue in ("parts", "joins"):
            store.queues.put(queue, max_attempts=1000)
        with Nursery(url, logs) as nursery:
            for _ in range(PROCESSES):
                nursery.start("weave", rng.randrange(10**9))
            flow = store.flows.publish(members(wide))
            for _ in range(kills):
                time.sleep(rng.uniform(0.005, 0.1))  # noqa: TID251 - a kill at any moment is what is tested
                for pid in rng.sample(nursery.living, rng.choice((1, 2, PROCESSES))):
                    nursery.kill(pid)
                    nursery.start("weave", rng.randrange(10**9))
            until(lambda: store.flows.get(flow).status != "running", 180)
        found = store.flows.get(flow, limit=wide + LAST + 2)
        assert found.counts == {"done": wide + LAST + 2}
        total = sum(range(wide))
        waiting = [one.id for one in found.members if one.parents]
        assert [store.get(id).result for id in waiting] == [total] * (LAST + 1) + [total * LAST]
        assert store.get(waiting[0]).payload == list(range(wide))
        frees = Counter(moved.id for moved in journal(store) if moved.verb == "free")
        assert frees == Counter(waiting)


@pytest.mark.parametrize("engine", ["file", "postgres", "mariadb", "redis", "cluster"])
def test_each_member_is_freed_once_whoever_is_killed(
    tmp_path: Path, logs: Path, seed: int, long: int, engine: str
) -> None:
    weave(URLS[engine](tmp_path), logs, random.Random(seed), WIDE * long, KILLS * long)
