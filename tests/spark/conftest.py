"""One Spark session for all Spark tests of a process; every test has a file of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import tampu

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUICK = {
    # Small, short jobs: the first compiler and one collector thread start and run them sooner.
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
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
        config={**QUICK, "spark.sql.warehouse.dir": str(home / "warehouse")},
    )
    yield session
    session.stop()


@pytest.fixture
def url(tmp_path: Path) -> str:
    return str(tmp_path / "jobs.db")


@pytest.fixture
def q(url: str) -> Iterator[tampu.Queue]:
    with tampu.open(url, keepers=False) as queue:
        yield queue
