"""Processes, sessions and the server are killed under load, on PostgreSQL with fsync: nothing acknowledged is lost."""

import random
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

import tampu
from tests.faults.crew import Nursery
from tests.faults.evidence import Logs
from tests.faults.examining import examine, outlives_its_lease
from tests.servers.postgres import Postgres

ROLES = ["publish", "work", "work", "work"]


@pytest.fixture
def server() -> Iterator[Postgres]:
    with Postgres({}) as made:
        yield made


@pytest.fixture
def url(server: Postgres) -> str:
    with tampu.open(server.url(), keepers=False) as q:
        q.queues.put("work", group_order=False)
        q.queues.put("lanes", group_order=True)
    return server.url()


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    made = tmp_path / "logs"
    made.mkdir()
    return made


def _start_all(nursery: Nursery, rng: random.Random) -> dict[int, str]:
    return {nursery.start(role, rng.randrange(10**9)): role for role in ROLES}


def test_killed_processes_lose_nothing_and_explain_every_duplicate(url: str, logs: Path, seed: int, long: int) -> None:
    rng = random.Random(seed)
    kills = 0
    with Nursery(url, logs) as nursery:
        crew = _start_all(nursery, rng)
        for _ in range(12 * long):
            time.sleep(rng.uniform(0.1, 0.6))  # noqa: TID251 - a kill at any moment is what is tested
            for pid in rng.sample(sorted(crew), rng.choice((1, 1, 2, len(ROLES)))):
                nursery.kill(pid)
                role = crew.pop(pid)
                crew[nursery.start(role, rng.randrange(10**9))] = role
                kills += 1
    examine(url, Logs.read(logs), kills)


def test_a_killed_server_has_all_that_it_acknowledged(
    server: Postgres, url: str, logs: Path, seed: int, long: int
) -> None:
    rng = random.Random(seed)
    with Nursery(url, logs) as nursery:
        _start_all(nursery, rng)
        for _ in range(4 * long):
            time.sleep(rng.uniform(0.3, 1.5))  # noqa: TID251 - a kill at any moment is what is tested
            server.kill()
            server.start()
        time.sleep(2)  # noqa: TID251 - the crew must be seen to work on after the last restart
    examine(url, Logs.read(logs), 4 * long)


def test_sessions_that_are_ended_at_any_moment_leave_no_silent_worker(
    server: Postgres, url: str, logs: Path, seed: int, long: int
) -> None:
    rng = random.Random(seed)
    ended = 0
    with Nursery(url, logs) as nursery, psycopg.connect(server.url(), autocommit=True) as db:
        _start_all(nursery, rng)
        for _ in range(20 * long):
            time.sleep(rng.uniform(0.05, 0.3))  # noqa: TID251 - a session may be ended at any moment
            pids = db.execute("SELECT pid FROM pg_stat_activity WHERE application_name = 'tampu'").fetchall()
            for (pid,) in rng.sample(pids, min(len(pids), rng.choice((1, 3, len(pids))))):
                db.execute("SELECT pg_terminate_backend(%s)", (pid,))
                ended += 1
        before = _published(logs)
        time.sleep(2)  # noqa: TID251 - the crew must be seen to work on after the last one
        assert _published(logs) > before, "they went on"
    examine(url, Logs.read(logs), ended)


def _published(logs: Path) -> int:
    return len(Logs.read(logs).published)


def test_a_worker_stopped_past_its_lease_changes_nothing(url: str, tmp_path: Path) -> None:
    outlives_its_lease(url, tmp_path)
