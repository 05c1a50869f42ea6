"""Silver and gold of a journal that was really worked: equal to the reference, however it is cut into runs."""

from __future__ import annotations

import random

import pytest

from tampu.lake import walking
from tampu.lake.objectives import Objective
from tests.lake import reference
from tests.lake.random_work import Worked, worked
from tests.lake.tables_in_memory import Keeping, assert_same
from tests.seeds import seed_of

OBJECTIVES = (
    {"queue": "emails", "objective": "latency", "target": 0.9, "within": 600.0},
    {"queue": "*", "objective": "success", "target": 1.0},
)


@pytest.fixture(scope="module")
def seed() -> int:
    return seed_of(__name__)


@pytest.fixture(scope="module")
def journal(seed: int, tmp_path_factory: pytest.TempPathFactory) -> Worked:
    return worked(tmp_path_factory.mktemp("worked"), seed, 600)


@pytest.fixture(scope="module")
def expected(journal: Worked) -> dict[str, list[reference.Row]]:
    return reference.silver(*journal) | reference.gold(*journal, OBJECTIVES)


@pytest.mark.parametrize("runs", [1, 2, 5, 20])
def test_tables_equal_the_reference_in_any_number_of_runs(
    journal: Worked, expected: dict[str, list[reference.Row]], seed: int, runs: int
) -> None:
    cuts = random.Random(seed + runs).sample(range(1, len(journal.events)), runs - 1)
    print(f"seed {seed}, cut at {cuts}")
    kept = Keeping([Objective(**one) for one in OBJECTIVES])  # type: ignore[arg-type]  # as in JSON
    kept.run_all(*journal, cuts, refresh_every=3)
    for name, rows in (kept.silver | kept.gold).items():
        assert_same(name, rows, expected[name])
    names = walking.STAYS.names
    assert sorted([stay[n] for n in names] for stay in kept.stays) == sorted(
        [stay[n] for n in names] for stay in expected["stays"]
    )
