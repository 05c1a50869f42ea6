"""Processes and servers are killed under load, on Redis with every write on disk: nothing acknowledged is lost.

In a cluster it is one server of three that is killed, each in its turn.
"""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.engines.redis.reshard import Move
from tests.faults.server_stories import furnish, processes_are_killed, the_server_is_killed
from tests.faults.verdict import outlives_its_lease
from tests.servers.redis import DURABLE, Server, Trio, redis_binary, valkey_binary

KITS: dict[str, Callable[[], Server | Trio]] = {
    "redis": lambda: Server(redis_binary(), DURABLE),
    "valkey": lambda: Server(valkey_binary(), DURABLE),
    "cluster": lambda: Trio(redis_binary(), DURABLE),
}


@pytest.fixture(params=KITS)
def server(request: pytest.FixtureRequest) -> Iterator[Server | Trio]:
    made = KITS[request.param]()
    yield made.start()
    made.remove()


@pytest.fixture
def url(server: Server | Trio) -> str:
    return furnish(server.url(durability="full"))


def test_killed_processes_lose_nothing_and_explain_every_duplicate(url: str, logs: Path, seed: int, long: int) -> None:
    processes_are_killed(url, logs, seed, long)


def test_a_killed_server_has_all_that_it_acknowledged(
    server: Server | Trio, url: str, logs: Path, seed: int, long: int
) -> None:
    the_server_is_killed(server, url, logs, seed, long)


def test_a_worker_stopped_past_its_lease_changes_nothing(url: str, tmp_path: Path) -> None:
    outlives_its_lease(url, tmp_path)


class Moving:
    """Stands in for a server: what it does instead of being killed and started is to move a slot, in two halves."""

    def __init__(self, trio: Trio) -> None:
        self._trio = trio
        self._tags = itertools.cycle(("{tampu:default:work}", "{tampu}", "{tampu:default:lanes}"))
        self._move: Move | None = None

    def kill(self) -> None:
        self._move = Move(self._trio, next(self._tags))
        self._move.begin()
        self._move.carry(3)

    def start(self) -> None:
        assert self._move is not None
        self._move.finish()


@pytest.mark.parametrize("server", ["cluster"], indirect=True)
def test_slots_that_move_have_all_that_was_acknowledged(
    server: Trio, url: str, logs: Path, seed: int, long: int
) -> None:
    the_server_is_killed(Moving(server), url, logs, seed, long)
