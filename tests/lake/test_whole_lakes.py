"""A lake kept by real runs from queues that were really worked, each run killed somewhere: every table equals the pure
Python reference."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

from tampu.lake.objectives import Objective
from tampu.lake.storage import Lake
from tampu.lake.tables import BY_NAME
from tests.lake import reference
from tests.lake.pipeline_harness import STEPS, Rig
from tests.lake.random_work import Working
from tests.lake.tables_in_memory import assert_same

OBJECTIVES = [
    {"queue": "emails", "objective": "latency", "target": 0.9, "within": 600.0},
    {"queue": "*", "objective": "success", "target": 1.0},
]
WORK = 50


def rows(lake: Lake, name: str) -> list[reference.Row]:
    found: list[reference.Row] = lake.table(name).open().arrow().to_table().to_pylist()
    return found


def check(lake: Lake, working: Working) -> None:
    """Events are those of the journal; what follows from them and from the bodies is the reference's."""
    events = [{**e, "run": None} for e in sorted(rows(lake, "bronze.events"), key=lambda e: e["offset"])]
    assert events == [{**e, "run": None} for e in working.worked.events]
    bodies = rows(lake, "bronze.messages")
    ends = [(e["id"], e["offset"]) for e in events if e["state"] in ("done", "dead", "cancelled", "expired")]
    assert sorted((b["id"], b["ended_offset"]) for b in bodies) == sorted(ends)
    expected = reference.silver(events, bodies) | reference.gold(events, bodies, OBJECTIVES)
    for name in BY_NAME:
        if not name.startswith("bronze."):
            assert_same(name, rows(lake, name), expected[name])


def test_lakes_whose_runs_died_are_computed_anew_or_are_of_an_earlier_version_equal_the_reference(
    tmp_path: Path, seed: int
) -> None:
    """One lake, checked three times, because its runs are what takes time."""
    working = Working(tmp_path, seed)
    rig = Rig(working.registry.url, str(tmp_path / "jobs.lake"))
    try:
        work_while_runs_die(rig, working, seed)
        check(rig.lake, working)

        rig.pipeline().backfill(rig.session, sorted({e["day"] for e in working.worked.events}), layer="silver")
        check(rig.lake, working)

        for table in ("_facts", "gold/queue_hours", "gold/queue_days"):  # a lake of an earlier version has none
            shutil.rmtree(Path(rig.lake.uri, table))
        working.work(30)
        rig.run()
        check(rig.lake, working)
    finally:
        working.close()


def work_while_runs_die(rig: Rig, working: Working, seed: int) -> None:
    """Runs die at each step, in a random order; the next one goes on and dies too. There is more work where a run would
    not come to its step without. The last run ends."""
    targets = [Objective(**one) for one in OBJECTIVES]  # type: ignore[arg-type]  # as in JSON
    reached = len(STEPS)
    for step in random.Random(seed).sample(STEPS, len(STEPS)):
        if STEPS.index(step) < reached:
            working.work(WORK)
        reached = STEPS.index(step)
        rig.run_until(step, targets=targets)
    rig.run(targets=targets)
