"""Lakes kept by real runs from queues that were really worked: every table equals the pure Python reference."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from tampu.lake.objectives import Objective
from tampu.lake.run import Pipeline
from tampu.lake.storage import Lake
from tampu.lake.tables import BY_NAME
from tests.lake import reference
from tests.lake.pipeline_harness import Died
from tests.lake.random_work import Working
from tests.lake.tables_in_memory import assert_same

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OBJECTIVES = [{"queue": "emails", "objective": "latency", "target": 0.9, "within": 600.0}]
STEPS = 240


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


def kept(folder: Path, seed: int, runs: int, run: Callable[[Pipeline], None], *, few: int) -> tuple[Lake, Working]:
    """A house at work; after each part of the work, a run."""
    print(f"seed {seed}")
    working = Working(folder, seed)
    try:
        lake = Lake(folder / "jobs.lake")
        for _ in range(runs):
            working.work(STEPS // runs)
            targets = [Objective(**one) for one in OBJECTIVES]  # type: ignore[arg-type]  # as in JSON
            run(Pipeline(working.registry.url, lake, targets=targets, few=few))
    finally:
        working.close()
    return lake, working


def no_spark() -> SparkSession:
    raise AssertionError("Spark is not needed here")


def without_spark(pipeline: Pipeline) -> None:
    pipeline.run(no_spark)


def test_many_small_runs_without_spark(tmp_path: Path, seed: int) -> None:
    lake, working = kept(tmp_path, seed, 8, without_spark, few=10**6)
    check(lake, working)


def test_runs_that_die_by_chance(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)

    def run(pipeline: Pipeline) -> None:
        left = chance.randrange(40)

        def step(_: str) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                raise Died

        pipeline._on_step = step
        try:
            pipeline.run(no_spark)
        except Died:
            pipeline._on_step = lambda _: None
            if chance.random() < 0.5:
                pipeline.run(no_spark)

    lake, working = kept(tmp_path, seed, 8, run, few=10**6)
    Pipeline(working.registry.url, lake).run(no_spark)
    check(lake, working)


def test_runs_on_spark(tmp_path: Path, seed: int, spark: SparkSession) -> None:
    def run(pipeline: Pipeline) -> None:
        pipeline.run(lambda: spark)

    lake, working = kept(tmp_path, seed, 2, run, few=0)
    check(lake, working)


def test_days_computed_anew_are_the_same(tmp_path: Path, seed: int) -> None:
    lake, working = kept(tmp_path, seed, 3, without_spark, few=10**6)
    days = sorted({e["day"] for e in working.told.events})
    Pipeline(working.registry.url, lake).backfill(no_spark, days, layer="silver")
    check(lake, working)
