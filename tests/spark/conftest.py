"""One Spark session for all Spark tests of a process; every test has a store of its own, and runs on every engine."""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import tempfile
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


@functools.cache
def shared() -> SparkSession:
    """The session of this process, warm after its first use."""
    import tampu.spark

    home = Path(tempfile.mkdtemp(prefix="tampu-spark-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    os.environ["SPARK_LOCAL_DIRS"] = str(home / "local")
    config = {**quick(), "spark.sql.warehouse.dir": str(home / "warehouse")}
    session = tampu.spark.session("local[2,3]", name="tampu-tests", config=config)
    atexit.register(session.stop)
    return session


@pytest.fixture(scope="session")
def spark() -> SparkSession:
    return shared()


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
