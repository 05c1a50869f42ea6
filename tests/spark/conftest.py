"""One Spark session for all Spark tests of a process; every test has a store of its own, and runs on every engine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import tampu
from tests.spark import quick_java
from tests.spark.engines import URLS, opened, web

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def quick() -> dict[str, str]:
    """The config of a session for small, short jobs."""
    return {
        "spark.driver.extraJavaOptions": quick_java.options(),
        "spark.driver.memory": "1g",
        "spark.sql.shuffle.partitions": "1",
        "spark.default.parallelism": "2",
    }


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    import tampu.spark

    home = tmp_path_factory.mktemp("spark")
    os.environ["SPARK_LOCAL_DIRS"] = str(home / "local")
    session = tampu.spark.session(
        "local[2,3]",
        name="tampu-tests",
        config={**quick(), "spark.sql.warehouse.dir": str(home / "warehouse")},
    )
    yield session
    session.stop()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Who asks for a store is run on each engine; with Spark, a cluster of Redis is to Spark what one server is."""
    if "engine" in metafunc.fixturenames:
        with_spark = "spark" in metafunc.fixturenames
        metafunc.parametrize("engine", [name for name in URLS if name != "cluster" or not with_spark])


@pytest.fixture
def url(engine: str, tmp_path: Path) -> Iterator[str]:
    yield URLS[engine](tmp_path)
    web.close()


@pytest.fixture
def store(url: str) -> Iterator[tampu.Store]:
    with opened(url) as made:
        yield made


@pytest.fixture
def q(url: str) -> Iterator[tampu.Store]:
    """The same, by the name that the tests of the lake use."""
    with opened(url) as made:
        yield made
