"""kill -9 of the driver: the next run has every transition in the lake exactly once, and all that follows from them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import tampu
from tampu.broker import access, journal_readers
from tampu.lake.tables import BY_NAME
from tests.lake.pipeline_harness import Rig, journal, work

ROOT = Path(__file__).parents[2]
LAYERS = ("bronze", "silver", "gold")


def test_drivers_killed_with_spark_at_work_are_repeated_exactly(tmp_path: Path) -> None:
    """In the jobs of bronze, silver and gold: tasks have written files that nobody was told of."""
    url = str(tmp_path / "jobs.db")
    with tampu.open(url, maintenance=False) as q:
        work(q)
        rigs = {layer: Rig(url, str(tmp_path / layer)) for layer in LAYERS}
        args = [sys.executable, "-m", "tests.lake.killed_job", url, str(tmp_path), *LAYERS]
        env = {**os.environ, "SPARK_LOCAL_DIRS": str(tmp_path / "spark")}
        done = subprocess.run(
            args, cwd=ROOT, env=env, start_new_session=True, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == -signal.SIGKILL, done.stderr[-3000:]

        events = rigs["bronze"].lake.table("bronze.events")
        left = {str(path.relative_to(events.uri)) for path in Path(events.uri).glob("20*/*.parquet")}
        assert left, "the files were written"
        assert events.open().files() == [], "and do not count"
        at = {reader.name: set(reader.position.values()) for reader in journal_readers.registered(access.engine(q))}
        assert at["lake:bronze"] == {0}
        behind = {
            layer: [name for name in BY_NAME if rigs[layer].lake.table(name).open().run(f"lake:{layer}") == 0]
            for layer in LAYERS[1:]
        }
        assert behind["silver"] == [name for name in BY_NAME if not name.startswith("bronze.")]
        assert behind["gold"] == [name for name in BY_NAME if name.startswith("gold.")]

        work(q, 1)
        whole = Rig(url, str(tmp_path / "whole"))
        whole.run(name="whole")
        for layer, rig in rigs.items():
            rig.run(name=layer)
            assert rig.rows("bronze.events", "offset", "id", "verb") == journal(q)
            for table in BY_NAME:
                columns = ("id", "ended_offset", "payload") if table == "bronze.messages" else ()
                assert rig.rows(table, *columns) == whole.rows(table, *columns), (layer, table)
        assert {file.path for file in events.open().files()}.isdisjoint(left)
        assert {tuple(reader.position.items()) for reader in journal_readers.registered(access.engine(q))} == {
            tuple(q.journal().latest.items())
        }
