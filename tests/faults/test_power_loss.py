"""Power is lost at any write: what was acknowledged is there, what was not is there whole or not at all."""

import random
from pathlib import Path

import pytest

from tampu.engines.sqlite import engine as engine_module
from tests.faults.history import History, live
from tests.faults.recovery import losses


@pytest.fixture(autouse=True)
def _small_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log grows to its full size at once after some commits; a smaller size keeps the images small."""
    monkeypatch.setattr(engine_module, "_LOG_BYTES", 60 * 4200)


def everything(history: History) -> range:
    return range(len(history.disk.events) + 1)


def test_a_seed_gives_the_same_history_again(tmp_path: Path, seed: int):
    logs = []
    for folder in (tmp_path / "once", tmp_path / "again"):
        folder.mkdir()
        history = live(folder, seed, calls=80)
        logs.append([(event.kind, event.name, event.offset, len(event.data)) for event in history.disk.events])
    assert logs[0] == logs[1]


def test_power_lost_at_every_write_of_a_short_history(tmp_path: Path, seed: int):
    history = live(tmp_path, seed, calls=12, checkpoint_pages=20)
    assert losses(history, tmp_path, seed, everything(history), fates=("lost", "torn")).problems == []


def test_power_lost_at_random_writes_of_long_histories(tmp_path: Path, seed: int, long: int):
    rng = random.Random(seed)
    for round_ in range(2 * long):
        folder = tmp_path / str(round_)
        folder.mkdir()
        history = live(folder, seed + round_, calls=120, checkpoint_pages=rng.choice((10, 40, 80)))
        assert happened(history) >= {"checkpoint", "log restarts", "log grows"}
        points = rng.sample(everything(history), 60)
        assert losses(history, tmp_path, seed, points).problems == []


def test_power_lost_while_the_log_grows(tmp_path: Path, seed: int):
    history = live(tmp_path, seed, calls=40, checkpoint_pages=1000)
    events = history.disk.events
    grows = next(n for n, event in enumerate(events) if event.kind == "mark" and event.name == "log grows")
    assert losses(history, tmp_path, seed, range(grows - 4, grows + 30)).problems == []


def test_receipts_of_a_forgotten_claim_are_refused(tmp_path: Path, seed: int):
    history = live(tmp_path, seed, calls=60)
    claims = [moment for moment in history.moments if moment.receipts]
    points = [point for claim in claims[:25] for point in range(claim.began, claim.ended, 4)]
    report = losses(history, tmp_path, seed, points, fates=("lost", "torn"))
    assert report.problems == []
    assert report.forgotten >= len(claims[:25])


def test_a_kill_loses_nothing_with_durability_process(tmp_path: Path, seed: int):
    """A killed process leaves all that it wrote, synced or not, with the system."""
    history = live(tmp_path, seed, calls=40, durability="process")
    points = random.Random(seed).sample(everything(history), 250)
    assert losses(history, tmp_path, seed, points, fates=("kept",)).problems == []


def test_the_checker_finds_what_durability_process_loses(tmp_path: Path, seed: int):
    """A test of the checker: with fewer syncs than promised it must find losses."""
    history = live(tmp_path, seed, calls=40, durability="process")
    points = [moment.ended for moment in history.moments]
    found = losses(history, tmp_path, seed, points, fates=("lost", "torn"))
    assert any("the state after call" in problem for problem in found.problems)


def test_the_checker_finds_what_a_lying_disk_loses(tmp_path: Path, seed: int):
    """A test of the checker: a disk that ignores syncs of the log loses acknowledged calls."""
    history = live(tmp_path, seed, calls=40)
    history.disk.events[:] = [
        event._replace(kind="mark") if (event.kind, event.name) == ("sync", "jobs.db-wal") else event
        for event in history.disk.events
    ]
    found = losses(history, tmp_path, seed, [moment.ended for moment in history.moments], fates=("lost", "torn"))
    assert len(found.problems) > 10


def happened(history: History) -> set[str]:
    """What the log shows beside commits."""
    seen = set()
    written = -1
    for event in history.disk.events:
        if event.kind == "mark" and event.name == "log grows":
            seen.add("log grows")
        if event.kind == "write" and event.name == "jobs.db-wal":
            if event.offset == 0 and written > 0:
                seen.add("log restarts")
            written = event.offset
        if event.kind == "sync" and event.name == "jobs.db" and history.opened:
            seen.add("checkpoint")
    return seen
