"""Processes, sessions and the server are killed under load, on PostgreSQL with fsync: nothing acknowledged is lost."""

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.faults.server_stories import furnish, processes_are_killed, sessions_are_ended, the_server_is_killed
from tests.faults.verdict import outlives_its_lease
from tests.servers.postgres import Postgres


@pytest.fixture
def server() -> Iterator[Postgres]:
    with Postgres({}) as made:
        yield made


@pytest.fixture
def url(server: Postgres) -> str:
    return furnish(server.url())


def test_killed_processes_lose_nothing_and_explain_every_duplicate(url: str, logs: Path, seed: int, long: int) -> None:
    processes_are_killed(url, logs, seed, long)


def test_a_killed_server_has_all_that_it_acknowledged(
    server: Postgres, url: str, logs: Path, seed: int, long: int
) -> None:
    the_server_is_killed(server, url, logs, seed, long)


def test_sessions_that_are_ended_at_any_moment_leave_no_silent_worker(
    server: Postgres, url: str, logs: Path, seed: int, long: int
) -> None:
    with psycopg.connect(server.url(), autocommit=True) as db:
        living = "SELECT pid FROM pg_stat_activity WHERE application_name = 'tampu'"
        sessions_are_ended(
            lambda: [pid for (pid,) in db.execute(living).fetchall()],
            lambda pid: db.execute("SELECT pg_terminate_backend(%s)", (pid,)).close(),
            url,
            logs,
            seed,
            long,
        )


def test_a_worker_stopped_past_its_lease_changes_nothing(url: str, tmp_path: Path) -> None:
    outlives_its_lease(url, tmp_path)
