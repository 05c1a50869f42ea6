"""kill -9 of the driver: the next run has every transition in the lake exactly once, and all that follows from them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import tampu
from tampu.broker import access, journal_readers
from tampu.lake.tables import BY_NAME
from tampu.model.journal import Position
from tests.lake.pipeline_harness import Rig, journal, work
from tests.spark.engines import URLS

ROOT = Path(__file__).parents[2]
LAYERS = ("bronze", "silver", "gold")


def test_drivers_killed_with_spark_at_work_are_repeated_exactly(tmp_path: Path) -> None:
    """In the jobs of bronze, silver and gold: tasks have written files that no commit names. Bronze is what
    reads the store, so it dies over a server's database too."""
    url, server_url = str(tmp_path / "jobs.db"), URLS["postgres"](tmp_path)
    with contextlib.ExitStack() as stack:
        store, on_server = (stack.enter_context(tampu.open(one, maintenance=False)) for one in (url, server_url))
        work(store)
        work(on_server)
        rigs = {layer: Rig(url, str(tmp_path / layer)) for layer in LAYERS}
        served = Rig(server_url, str(tmp_path / "server" / "bronze"))
        places = [text for rig in (*rigs.values(), served) for text in (rig.url, rig.lake.uri)]
        args = [sys.executable, "-m", "tests.lake.killed_job", *places]
        env = {**os.environ, "SPARK_LOCAL_DIRS": str(tmp_path / "spark")}
        done = subprocess.run(
            args, cwd=ROOT, env=env, start_new_session=True, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == -signal.SIGKILL, done.stderr[-3000:]

        left = {}
        for rig, written in ((rigs["bronze"], store), (served, on_server)):
            events = rig.lake.table("bronze.events")
            left[rig] = {str(path.relative_to(events.uri)) for path in Path(events.uri).glob("20*/*.parquet")}
            assert left[rig], "the files were written"
            assert events.open().files() == [], "and do not count"
            assert positions(written)["lake:bronze"] == {"0": 0}
        behind = {
            layer: [name for name in BY_NAME if rigs[layer].lake.table(name).open().run(f"lake:{layer}") == 0]
            for layer in LAYERS[1:]
        }
        assert behind["silver"] == [name for name in BY_NAME if not name.startswith("bronze.")]
        assert behind["gold"] == [name for name in BY_NAME if name.startswith("gold.")]

        work(store, 1)
        whole = Rig(url, str(tmp_path / "whole"))
        whole.run(name="whole")
        for layer, rig in rigs.items():
            rig.run(name=layer)
            assert rig.rows("bronze.events", "offset", "id", "verb") == journal(store)
            for table in BY_NAME:
                columns = ("id", "ended_offset", "payload") if table == "bronze.messages" else ()
                assert rig.rows(table, *columns) == whole.rows(table, *columns), (layer, table)
        assert list(positions(store).values()) == [store.journal().latest] * (1 + len(LAYERS))

        served.run(name="bronze")
        assert served.rows("bronze.events", "offset", "id", "verb") == journal(on_server)
        assert len(served.rows("silver.messages")) == len(served.rows("bronze.messages")) == 2
        assert positions(on_server) == {"lake:bronze": on_server.journal().latest}
        for rig, files in left.items():
            known = rig.lake.table("bronze.events").open().files()
            assert {file.path for file in known}.isdisjoint(files)


def positions(store: tampu.Store) -> dict[str, Position]:
    return {reader.name: reader.position for reader in journal_readers.registered(access.engine(store))}
