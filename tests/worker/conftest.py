"""What the tests of tasks and workers are given: an app on a store of some engine, with the real clock."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import tampu
from tests.conformance.conftest import KITS
from tests.conformance.harness import Harness
from tests.conformance.served import build
from tests.worker import shop

ENGINES = ("memory", "file", "postgres", "redis", "http")
CHOSEN = [kit for kit in KITS if kit.name in ENGINES]
SHARED = [kit for kit in CHOSEN if not kit.private]


@pytest.fixture(params=CHOSEN, ids=lambda kit: kit.name)
def harness(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Harness]:
    built = build(request.param, tmp_path)
    yield built
    built.close()


@pytest.fixture(params=SHARED, ids=lambda kit: kit.name)
def shared_harness(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Harness]:
    """Only stores that several processes may have open."""
    built = build(request.param, tmp_path)
    yield built
    built.close()


@pytest.fixture
def app(harness: Harness) -> tampu.App:
    """Without tasks. The worker's leases are kept by a thread, which is there at once."""
    return tampu.App(harness.live())


@pytest.fixture
def memory() -> Iterator[tampu.App]:
    """For what has nothing to do with the store."""
    with tampu.App("memory://") as app:
        yield app


@pytest.fixture
def shop_app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tampu.App]:
    """The shop, in memory: only its worker needs the store."""
    monkeypatch.setenv("SHOP_FOLDER", str(tmp_path))
    monkeypatch.setattr(shop, "FOLDER", tmp_path)
    yield shop.app
    shop.app.close()
