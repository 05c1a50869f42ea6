"""The engines that take part in the conformance suite. A new engine is one more `Kit`."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tampu.broker.store import Store
from tests.conformance.harness import Harness, Kit, Refusals
from tests.conformance.served import build
from tests.servers import mariadb, pgbouncer, postgres, redis

EVERY = (
    Kit(name="memory", url=lambda _: "memory://", private=True, transactions=True),
    Kit(name="file", url=lambda folder: str(folder / "jobs.db"), transactions=True),
    Kit(name="postgres", url=lambda _: postgres.databases.url(), transactions=True),
    Kit(name="mariadb", url=lambda _: mariadb.databases.url(), transactions=True),
    Kit(name="mariadb+redis", url=lambda _: mariadb.indexed(), transactions=True),
    Kit(name="redis", url=lambda _: redis.redis.url()),
    Kit(name="valkey", url=lambda _: redis.valkey.url()),
    Kit(name="cluster", url=lambda _: redis.cluster.url()),
    Kit(name="http", url=lambda folder: str(folder / "jobs.db"), served=True),
)
# Besides, when they are named: `make test-versions` does.
OTHERS = (
    Kit(name="pgbouncer", url=lambda _: pgbouncer.databases.url(), transactions=True),
    Kit(name="redis6", url=lambda _: redis.old_redis.url()),
)
CHOSEN = os.environ.get("TAMPU_TEST_KITS", "").split(",")
KITS = (*EVERY, *(kit for kit in OTHERS if kit.name in CHOSEN))
TRANSACTIONAL = tuple(kit for kit in KITS if kit.transactions)
SHARED = tuple(kit for kit in KITS if not kit.private)
DIRECT = tuple(kit for kit in SHARED if not kit.served)


def _name(kit: Kit) -> str:
    return kit.name


@pytest.fixture(params=KITS, ids=_name)
def harness(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Harness]:
    built = build(request.param, tmp_path)
    yield built
    built.close()


@pytest.fixture(params=SHARED, ids=_name)
def shared_harness(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Harness]:
    """Only engines whose store several processes may have open at once."""
    built = build(request.param, tmp_path)
    yield built
    built.close()


@pytest.fixture(params=DIRECT, ids=_name)
def direct_harness(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Harness]:
    """Only engines where each opening looks at the settings by itself."""
    built = build(request.param, tmp_path)
    yield built
    built.close()


@pytest.fixture(params=TRANSACTIONAL, ids=_name)
def transactional_harness(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Harness]:
    """Only engines that can share a transaction with the user."""
    built = build(request.param, tmp_path)
    yield built
    built.close()


@pytest.fixture
def refused(harness: Harness) -> Iterator[Refusals]:
    """Calls that must be refused and change nothing; checked at the end of the test."""
    refusals = Refusals(harness)
    yield refusals
    refusals.check()


@pytest.fixture
def store(harness: Harness) -> Store:
    """The default tenant of the store."""
    return harness.open()
