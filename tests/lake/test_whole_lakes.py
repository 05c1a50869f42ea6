"""A lake kept by real runs from queues that were really worked, each run killed somewhere: every table equals the pure
Python reference."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tampu.lake.objectives import Objective
from tampu.lake.storage import Lake
from tampu.lake.tables import BY_NAME
from tests.lake import reference
from tests.lake.pipeline_harness import STEPS, Died, Rig
from tests.lake.random_work import Working
from tests.lake.tables_in_memory import assert_same
from tests.seeds import seed_of

OBJECTIVES = [
    {"queue": "emails", "objective": "latency", "target": 0.9, "within": 600.0},
    {"queue": "*", "objective": "success", "target": 1.0},
]
WORK = 300


def rows(lake: Lake, name: str) -> list[reference.Row]:
    found: list[reference.Row] = lake.table(name).open().arrow().to_table().to_pylist()
    return found


def check(lake: Lake, working: Working) -> None:
    """Events are those of the journal; what follows from them and from the bodies is the reference's."""
    events = [{**e, "run": None} for e in sorted(rows(lake, "bronze.events"), key=lambda e: e["offset"])]
    assert events == [{**e, "run": None} for e in working.told.events]
    bodies = rows(lake, "bronze.messages")
    ends = [(e["id"], e["offset"]) for e in events if e["state"] in ("done", "dead", "cancelled", "expired")]
    assert sorted((b["id"], b["ended_offset"]) for b in bodies) == sorted(ends)
    expected = reference.silver(events, bodies) | reference.gold(events, bodies, OBJECTIVES)
    for name in BY_NAME:
        if not name.startswith("bronze."):
            assert_same(name, rows(lake, name), expected[name])


@pytest.fixture(scope="module")
def worked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Rig, Working]]:
    """A store at work, in as many parts as there are steps. The run after each part dies at another step, by chance
    which,
    and the next one finishes it; the last one comes to its end."""
    folder, seed = tmp_path_factory.mktemp("worked"), seed_of(__name__)
    print(f"seed {seed}")
    working = Working(folder, seed)
    rig = Rig(working.registry.url, str(folder / "jobs.lake"))
    targets = [Objective(**one) for one in OBJECTIVES]  # type: ignore[arg-type]  # as in JSON
    steps = random.Random(seed).sample(STEPS, len(STEPS))
    try:
        for step in steps:
            working.work(WORK // len(steps))
            try:
                rig.run(die=step, targets=targets)
            except Died:
                continue
        rig.run(targets=targets)
        yield rig, working
    finally:
        working.close()


def test_runs_that_die_anywhere_leave_what_the_reference_computes(worked: tuple[Rig, Working]) -> None:
    rig, working = worked
    check(rig.lake, working)


def test_days_computed_anew_are_the_same(worked: tuple[Rig, Working]) -> None:
    rig, working = worked
    days = sorted({e["day"] for e in working.told.events})
    rig.pipeline().backfill(rig.session, days, layer="silver")
    check(rig.lake, working)


def test_a_lake_of_an_earlier_version_gets_its_facts_with_the_next_run(worked: tuple[Rig, Working]) -> None:
    rig, working = worked
    for table in ("_facts", "gold/queue_hours", "gold/queue_days"):
        shutil.rmtree(Path(rig.lake.uri, table))
    working.work(30)
    rig.run()
    check(rig.lake, working)
