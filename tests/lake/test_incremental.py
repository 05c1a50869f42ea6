"""Silver and gold of a journal that was really worked: equal to the reference, however it is cut into runs."""

from __future__ import annotations

import random
import secrets
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tampu.lake import silver
from tampu.lake.objectives import Objective
from tests.lake import reference
from tests.lake.keeping import Keeping, assert_same
from tests.lake.working import Worked, worked

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OBJECTIVES = (
    {"queue": "emails", "objective": "latency", "target": 0.9, "within": 600.0},
    {"queue": "*", "objective": "success", "target": 1.0},
)


@pytest.fixture(scope="module")
def seed() -> int:
    return secrets.randbelow(1 << 32)


@pytest.fixture(scope="module")
def journal(seed: int, tmp_path_factory: pytest.TempPathFactory) -> Worked:
    return worked(tmp_path_factory.mktemp("worked"), seed, 600)


@pytest.fixture(scope="module")
def expected(journal: Worked) -> dict[str, list[reference.Row]]:
    return reference.silver(*journal) | reference.gold(*journal, OBJECTIVES)


@pytest.fixture
def interpreted(spark: SparkSession) -> Iterator[None]:
    """Compiling and replanning cost more than these few rows; the other tests of the tables have both."""
    quick = {"spark.sql.codegen.factoryMode": "NO_CODEGEN", "spark.sql.codegen.wholeStage": "false"}
    quick["spark.sql.adaptive.enabled"] = "false"
    usual = {name: spark.conf.get(name) for name in quick}
    for name, value in quick.items():
        spark.conf.set(name, value)
    yield
    for name, usually in usual.items():
        spark.conf.set(name, str(usually))


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("runs", [1, 2, 5])
def test_tables_equal_the_reference_in_any_number_of_runs(
    spark: SparkSession, journal: Worked, expected: dict[str, list[reference.Row]], seed: int, runs: int
) -> None:
    cuts = random.Random(seed + runs).sample(range(1, len(journal.events)), runs - 1)
    print(f"seed {seed}, cut at {cuts}")
    kept = Keeping(spark, [Objective(**one) for one in OBJECTIVES])  # type: ignore[arg-type]  # as in JSON
    kept.run_all(*journal, cuts, refresh_every=3)
    for name, rows in (kept.silver | kept.gold).items():
        assert_same(name, rows, expected[name])
    names = silver.STAYS.names
    assert sorted([stay[n] for n in names] for stay in kept.stays) == sorted(
        [stay[n] for n in names] for stay in expected["stays"]
    )
