"""Processes that hand messages on in units are killed at random moments: each message has its effects exactly once."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import tampu
from tests.conformance.harness import until
from tests.faults.crew import Nursery
from tests.server.test_nodes import Nodes
from tests.servers import mariadb, postgres, redis
from tests.servers.ports import free_port

URLS: dict[str, Callable[[Path], str]] = {
    "file": lambda folder: str(folder / "jobs.db"),
    "postgres": lambda _: postgres.databases.url(),
    "mariadb": lambda _: mariadb.databases.url(),
    "mariadb+redis": lambda _: mariadb.indexed(),
    "redis": lambda _: redis.redis.url(),
    "cluster": lambda _: redis.cluster.url(),
}
PROCESSES = 4
MESSAGES = 150


def check(store: tampu.Store, count: int) -> None:
    """When all is done: exactly once what came of each."""

    def over() -> bool:
        notes = store.stats("notes").counts.get(tampu.State.READY, 0) if "notes" in store.queues.list() else 0
        return store.stats("in").done == count and notes >= 2 * count

    until(over, 120)
    assert sorted(m.payload for m in store.messages("out", limit=10_000)) == list(range(count))
    assert sorted(m.payload for m in store.messages("notes", limit=10_000)) == sorted([*range(count)] * 2)


def fill(store: tampu.Store, count: int) -> None:
    store.queues.put("in", max_attempts=1000)
    store.publish_many("in", range(count))


@pytest.mark.parametrize("engine", URLS)
def test_what_killed_processes_hand_on_in_units_is_there_once(
    tmp_path: Path, logs: Path, seed: int, long: int, engine: str
) -> None:
    rng = random.Random(seed)
    url = URLS[engine](tmp_path)
    count = MESSAGES * long
    with tampu.open(url) as store, Nursery(url, logs) as nursery:
        fill(store, count)
        for _ in range(PROCESSES):
            nursery.start("relay", rng.randrange(10**9))
        for _ in range(12 * long):
            time.sleep(rng.uniform(0.005, 0.1))  # noqa: TID251 - a kill at any moment is what is tested
            for pid in rng.sample(nursery.living, rng.choice((1, 2, PROCESSES))):
                nursery.kill(pid)
                nursery.start("relay", rng.randrange(10**9))
        check(store, count)


@pytest.mark.parametrize("engine", ["file", "cluster"])
def test_units_over_http_take_effect_once_when_clients_and_servers_are_killed(
    tmp_path: Path, logs: Path, seed: int, long: int, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(seed)
    nodes = Nodes(tmp_path, URLS[engine](tmp_path))
    port = free_port()
    try:
        url = nodes.start(port)
        monkeypatch.setenv("TAMPU_TOKEN", nodes.token)
        count = MESSAGES * long
        with tampu.open(url) as store, Nursery(url, logs) as nursery:
            fill(store, count)
            for _ in range(PROCESSES):
                nursery.start("relay", rng.randrange(10**9))
            for _ in range(3 * long):
                for _ in range(3):
                    time.sleep(rng.uniform(0.005, 0.1))  # noqa: TID251 - a kill at any moment is what is tested
                    pid = rng.choice(nursery.living)
                    nursery.kill(pid)
                    nursery.start("relay", rng.randrange(10**9))
                nodes.kill(-1)
                nodes.start(port)
            check(store, count)
    finally:
        nodes.stop()
