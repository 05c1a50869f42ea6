"""Processes and servers are killed under load, on Redis with every write on disk: nothing acknowledged is lost."""

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import tampu
from tests.faults.crew import Nursery
from tests.faults.evidence import Logs
from tests.faults.examining import examine, outlives_its_lease, works_on
from tests.servers.redis import DURABLE, Server, Trio, redis_binary, valkey_binary

ROLES = ["publish", "work", "work", "work"]


@pytest.fixture(params=["redis", "valkey"])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    made = Server(redis_binary() if request.param == "redis" else valkey_binary(), DURABLE)
    yield made.start()
    made.remove()


@pytest.fixture
def trio() -> Iterator[Trio]:
    made = Trio(redis_binary(), DURABLE)
    yield made.start()
    made.remove()


def _logs(folder: Path) -> Path:
    made = folder / "logs"
    made.mkdir()
    return made


def _set_up(url: str) -> None:
    with tampu.open(url, keepers=False, durability="full") as q:
        q.queues.put("lanes", group_order=True)
        q.queues.put("work", lease=5)


def test_killed_processes_lose_nothing_and_explain_every_duplicate(
    server: Server, tmp_path: Path, seed: int, long: int
) -> None:
    rng = random.Random(seed)
    url, logs = server.url(), _logs(tmp_path)
    _set_up(url)
    kills = 0
    with Nursery(url, logs) as nursery:
        crew = {nursery.start(role, rng.randrange(10**9)): role for role in ROLES}
        for _ in range(12 * long):
            time.sleep(rng.uniform(0.05, 0.8))  # noqa: TID251 - a kill at any moment is what is tested
            for pid in rng.sample(sorted(crew), rng.choice((1, 1, 2, len(ROLES)))):
                nursery.kill(pid)
                role = crew.pop(pid)
                crew[nursery.start(role, rng.randrange(10**9))] = role
                kills += 1
        works_on(logs)
    examine(url, Logs.read(logs), kills)


def test_a_killed_server_has_all_that_it_acknowledged(server: Server, tmp_path: Path, seed: int, long: int) -> None:
    rng = random.Random(seed)
    url, logs = server.url(), _logs(tmp_path)
    _set_up(url)
    with Nursery(url, logs) as nursery:
        for role in ROLES:
            nursery.start(role, rng.randrange(10**9))
        for _ in range(5 * long):
            time.sleep(rng.uniform(0.2, 1.0))  # noqa: TID251 - a kill at any moment is what is tested
            server.kill()
            server.start()
        works_on(logs)
    examine(url, Logs.read(logs), 5 * long)


def test_a_killed_server_of_a_cluster_has_all_that_it_acknowledged(
    trio: Trio, tmp_path: Path, seed: int, long: int
) -> None:
    rng = random.Random(seed)
    url, logs = trio.url(), _logs(tmp_path)
    _set_up(url)
    with Nursery(url, logs) as nursery:
        for role in ROLES:
            nursery.start(role, rng.randrange(10**9))
        for _ in range(3 * long):
            time.sleep(rng.uniform(0.2, 1.0))  # noqa: TID251 - a kill at any moment is what is tested
            one = rng.choice(trio.servers)
            one.kill()
            one.start()
            trio.wait()
        works_on(logs)
    examine(url, Logs.read(logs), 3 * long)


def test_a_worker_stopped_past_its_lease_changes_nothing(server: Server, tmp_path: Path) -> None:
    outlives_its_lease(server.url(), tmp_path)
