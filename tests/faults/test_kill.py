"""Processes are killed at random moments under load: nothing acknowledged is lost, and every duplicate has a reason."""

import random
import sqlite3
import time
from pathlib import Path

import tampu
from tests.faults.crew import Nursery
from tests.faults.evidence import Logs
from tests.faults.verdict import examine, outlives_its_lease, works_on


def test_killed_processes_lose_nothing_and_explain_every_duplicate(tmp_path: Path, seed: int, long: int):
    rng = random.Random(seed)
    url, logs = tmp_path / "jobs.db", tmp_path / "logs"
    logs.mkdir()
    with tampu.open(url, maintenance=False) as store:
        store.queues.put("lanes", group_order=True)
    roles = ["publish", "work", "work", "work"]
    kills = 0
    with Nursery(url, logs) as nursery:
        crew = {nursery.start(role, rng.randrange(10**9)): role for role in roles}
        for _ in range(40 * long):
            time.sleep(rng.uniform(0.01, 0.3))  # noqa: TID251 - a kill at any moment is what is tested
            for pid in rng.sample(sorted(crew), rng.choice((1, 1, 2, len(roles)))):
                nursery.kill(pid)
                role = crew.pop(pid)
                crew[nursery.start(role, rng.randrange(10**9))] = role
                kills += 1
        works_on(logs)
    integrity(url)
    examine(url, Logs.read(logs), kills)


def integrity(url: Path) -> None:
    db = sqlite3.connect(url)
    assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    db.close()


def test_a_worker_stopped_past_its_lease_changes_nothing(tmp_path: Path):
    outlives_its_lease(tmp_path / "jobs.db", tmp_path)
