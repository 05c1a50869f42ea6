"""Five processes keep schedules and are killed at random moments: no tick is fired twice, and none is missing."""

import random
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest

import tampu
from tests.conformance.harness import until
from tests.faults.crew import Nursery
from tests.servers import postgres, redis

URLS: dict[str, Callable[[Path], str]] = {
    "file": lambda folder: str(folder / "jobs.db"),
    "postgres": lambda _: postgres.databases.url(),
    "redis": lambda _: redis.redis.url(),
}
NAMES = ("a", "b", "c")
PROCESSES = 5
TICKS = 6


@pytest.mark.parametrize("engine", URLS)
def test_killed_leaders_fire_every_tick_once(tmp_path: Path, logs: Path, seed: int, long: int, engine: str):
    rng = random.Random(seed)
    url = URLS[engine](tmp_path)
    with tampu.open(url, maintenance=False) as store, Nursery(url, logs) as nursery:
        for name in NAMES:
            store.schedules.put(name, queue=f"q.{name}", payload=name, every=1, limit=TICKS * long, missed="all(1000)")
        for _ in range(PROCESSES):
            nursery.start("keep")
        for _ in range(12 * long):
            time.sleep(rng.uniform(0.01, 0.4))  # noqa: TID251 - a kill at any moment is what is tested
            for pid in rng.sample(nursery.living, rng.choice((1, 2, PROCESSES))):
                nursery.kill(pid)
                nursery.start("keep")
        until(lambda: all(s.status == "ended" for s in store.schedules.list()), 120 * long)
        for name in NAMES:
            found = sorted(m.headers["tampu-tick"] for m in store.messages(f"q.{name}", limit=10_000))
            assert len(found) == TICKS * long
            times = [datetime.fromisoformat(text) for text in found]
            assert {after - before for before, after in pairwise(times)} == {timedelta(seconds=1)}
            assert times[0] == store.schedules.get(name).created_at + timedelta(seconds=1)
