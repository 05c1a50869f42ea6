"""kill -9 of the driver: the next run has every transition in the lake exactly once, and all that follows from them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import tampu
from tampu.broker import access, journal_readers
from tampu.lake.tables import BY_NAME
from tests.lake.pipeline_harness import Rig, journal, work

ROOT = Path(__file__).parents[2]


def killed(rig: Rig, *words: str) -> None:
    args = [sys.executable, "-m", "tests.lake.killed_job", rig.url, rig.lake.uri, *words]
    env = {**os.environ, "SPARK_LOCAL_DIRS": f"{rig.lake.uri}-spark"}
    done = subprocess.run(
        args, cwd=ROOT, env=env, start_new_session=True, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == -signal.SIGKILL, done.stderr[-3000:]


def test_a_driver_killed_after_its_files_were_written_doubles_nothing(url: str, q: tampu.Store, tmp_path: Path) -> None:
    work(q)
    rig = Rig(url, str(tmp_path / "jobs.lake"))
    killed(rig, "written")
    events = rig.lake.table("bronze.events")
    left = {str(path.relative_to(events.uri)) for path in Path(events.uri).glob("20*/*.parquet")}
    assert left, "the files were written"
    assert events.open().files() == [], "and do not count"
    (reader,) = journal_readers.registered(access.engine(q))
    assert set(reader.position.values()) == {0}

    work(q, 1)
    rig.run()
    assert rig.rows("bronze.events", "offset", "id", "verb") == journal(q)
    assert {file.path for file in events.open().files()}.isdisjoint(left)
    (reader,) = journal_readers.registered(access.engine(q))
    assert reader.position == q.journal().latest


def test_drivers_killed_with_spark_at_work_are_repeated_exactly(tmp_path: Path) -> None:
    """In the jobs of bronze, silver and gold, all at once, for a driver takes seconds to start."""
    url = str(tmp_path / "jobs.db")
    steps = ("reading", "bronze.messages", "_state.carried")
    with tampu.open(url, maintenance=False) as q:
        work(q)
        rigs = {step: Rig(url, str(tmp_path / step)) for step in steps}
        for step, rig in rigs.items():
            rig.run(name=step)
        work(q, 1)
        with ThreadPoolExecutor(len(steps)) as pool:
            for done in [pool.submit(killed, rig, step, step) for step, rig in rigs.items()]:
                done.result()
        whole = Rig(url, str(tmp_path / "whole"))
        whole.run(name="whole")
        behind = {step: [name for name in BY_NAME if rig.lake.table(name).open().run(f"lake:{step}") == 1]
                  for step, rig in rigs.items()}  # fmt: skip
        assert behind["reading"] == list(BY_NAME), "nothing was committed"
        assert "silver.messages" in behind["bronze.messages"]
        assert behind["_state.carried"] == [name for name in BY_NAME if name.startswith("gold.")]
        for step, rig in rigs.items():
            rig.run(name=step)
            assert rig.rows("bronze.events", "offset", "id", "verb") == journal(q)
            for table in BY_NAME:
                columns = ("id", "ended_offset", "payload") if table == "bronze.messages" else ()
                assert rig.rows(table, *columns) == whole.rows(table, *columns), (step, table)
