"""Processes, sessions and the server are killed under load, on MariaDB with fsync: nothing acknowledged is lost.

The same with an index in Redis, which is killed, stopped and emptied besides.
"""

import contextlib
import random
import time
import urllib.parse
from collections.abc import Iterator
from pathlib import Path

import pymysql
import pytest

from tests.faults.server_stories import furnish, processes_are_killed, sessions_are_ended, the_server_is_killed
from tests.faults.verdict import outlives_its_lease
from tests.servers.mariadb import MariaDb
from tests.servers.redis import FAST, Server, redis_binary


@pytest.fixture
def server() -> Iterator[MariaDb]:
    with MariaDb({}) as made:
        yield made


@pytest.fixture
def url(server: MariaDb) -> str:
    return furnish(server.url())


def test_killed_processes_lose_nothing_and_explain_every_duplicate(url: str, logs: Path, seed: int, long: int) -> None:
    processes_are_killed(url, logs, seed, long)


def test_a_killed_server_has_all_that_it_acknowledged(
    server: MariaDb, url: str, logs: Path, seed: int, long: int
) -> None:
    the_server_is_killed(server, url, logs, seed, long)


def test_sessions_that_are_ended_at_any_moment_leave_no_silent_worker(
    server: MariaDb, url: str, logs: Path, seed: int, long: int
) -> None:
    with server.connect() as db, db.cursor() as cursor:

        def living() -> list[int]:
            cursor.execute("SELECT id FROM information_schema.processlist WHERE db = 'tampu' AND id <> CONNECTION_ID()")
            return [id for (id,) in cursor.fetchall()]

        def end(id: int) -> None:
            with contextlib.suppress(pymysql.OperationalError):  # it has ended meanwhile
                cursor.execute(f"KILL CONNECTION {id}")

        sessions_are_ended(living, end, url, logs, seed, long)


def test_a_worker_stopped_past_its_lease_changes_nothing(url: str, tmp_path: Path) -> None:
    outlives_its_lease(url, tmp_path)


@pytest.fixture
def index() -> Iterator[Server]:
    made = Server(redis_binary(), FAST)
    yield made.start()
    made.remove()


@pytest.fixture
def indexed(server: MariaDb, index: Server) -> str:
    return furnish(server.url(index=urllib.parse.quote(index.url(), safe="")))


def test_with_an_index_killed_processes_lose_nothing(indexed: str, logs: Path, seed: int, long: int) -> None:
    processes_are_killed(indexed, logs, seed, long)


def test_an_index_that_is_killed_and_emptied_changes_nothing(
    index: Server, indexed: str, logs: Path, seed: int, long: int
) -> None:
    def emptied(rng: random.Random) -> None:
        time.sleep(rng.uniform(0, 0.5))  # noqa: TID251 - it may be emptied at any moment
        with index.client() as client:
            client.flushall()

    the_server_is_killed(index, indexed, logs, seed, 2 * long, emptied)


def test_both_servers_killed_lose_nothing(
    server: MariaDb, index: Server, indexed: str, logs: Path, seed: int, long: int
) -> None:
    def index_too(rng: random.Random) -> None:
        time.sleep(rng.uniform(0, 0.5))  # noqa: TID251 - it may be killed at any moment
        index.kill()
        time.sleep(rng.uniform(0, 0.5))  # noqa: TID251 - and stay away for a while
        index.start()

    the_server_is_killed(server, indexed, logs, seed, long, index_too)


def test_with_an_index_a_worker_stopped_past_its_lease_changes_nothing(indexed: str, tmp_path: Path) -> None:
    outlives_its_lease(indexed, tmp_path)
