"""kill -9 of the driver between writing and committing: the next run has every transition in the lake exactly once."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import tampu
from tampu.broker import readers
from tests.lake.running_house import Rig, journal, work

ROOT = Path(__file__).parents[2]


def test_a_driver_killed_after_its_files_were_written_doubles_nothing(url: str, q: tampu.Queue, tmp_path: Path) -> None:
    work(q)
    rig = Rig(url, str(tmp_path / "jobs.lake"))
    args = [sys.executable, "-m", "tests.lake.killed_job", url, rig.lake.uri, "written"]
    killed = subprocess.run(args, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    events = rig.lake.table("bronze.events")
    left = list(Path(events.uri).glob("20*/*.parquet"))
    assert left, "the files were written"
    assert events.open().files() == [], "and do not count"
    (reader,) = readers.registered(q._core.engine)
    assert set(reader.position.values()) == {0}

    work(q, 1)
    rig.run()
    assert rig.rows("bronze.events", "offset", "id", "verb") == journal(q)
    assert {file.path for file in events.open().files()}.isdisjoint(path.name for path in left)
    (reader,) = readers.registered(q._core.engine)
    assert reader.position == q.journal().latest
