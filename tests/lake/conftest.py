"""The Spark session and queues of the Spark tests, for the lake's tests too: it is the same session."""

from pathlib import Path

import pytest

from tests.spark.conftest import pytest_generate_tests as on_each_engine
from tests.spark.conftest import spark, store, url
from tests.spark.engines import URLS

__all__ = ["spark", "store", "url"]


ON_EACH = ("test_bronze",)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """What is read from a store is read from each kind; the lake does not ask where it is from."""
    if metafunc.module.__name__.rpartition(".")[2] in ON_EACH:
        on_each_engine(metafunc)
    elif "engine" in metafunc.fixturenames:
        metafunc.parametrize("engine", ["file"])


@pytest.fixture
def other_url(engine: str, tmp_path: Path) -> str:
    """Another store of the same kind."""
    folder = tmp_path / "other"
    folder.mkdir()
    return URLS[engine](folder)
