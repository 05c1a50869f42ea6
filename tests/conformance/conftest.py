"""The engines that take part in the conformance suite. A new engine is one more `Kit`."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tampu.broker.queue import Queue
from tests.conformance.house import House, Kit
from tests.servers import postgres, redis

KITS = (
    Kit(name="memory", url=lambda _: "memory://", private=True, transactions=True),
    Kit(name="file", url=lambda folder: str(folder / "jobs.db"), transactions=True),
    Kit(name="postgres", url=lambda _: postgres.houses.url(), transactions=True),
    Kit(name="redis", url=lambda _: redis.redis.url()),
    Kit(name="valkey", url=lambda _: redis.valkey.url()),
    Kit(name="cluster", url=lambda _: redis.cluster.url()),
)
TRANSACTIONAL = tuple(kit for kit in KITS if kit.transactions)
SHARED = tuple(kit for kit in KITS if not kit.private)


def _name(kit: Kit) -> str:
    return kit.name


@pytest.fixture(params=KITS, ids=_name)
def house(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[House]:
    built = House(request.param, tmp_path)
    yield built
    built.close()


@pytest.fixture(params=SHARED, ids=_name)
def shared_house(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[House]:
    """Only engines whose store several processes may have open at once."""
    built = House(request.param, tmp_path)
    yield built
    built.close()


@pytest.fixture(params=TRANSACTIONAL, ids=_name)
def transactional_house(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[House]:
    """Only engines that can share a transaction with the user."""
    built = House(request.param, tmp_path)
    yield built
    built.close()


@pytest.fixture
def q(house: House) -> Queue:
    """The default tenant of the store."""
    return house.open()
