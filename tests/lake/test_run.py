"""Runs: everything once, nothing lost, whoever died where; and nothing at all when there is no news."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import tampu
from tampu import InvalidConfig, NotFound, VersionConflict
from tampu.broker import access, journal_readers
from tampu.lake import lineage, maintenance
from tampu.lake.run import Pipeline
from tampu.lake.status import status
from tampu.lake.storage import Lake, files
from tampu.model.errors import StorageError
from tests.lake.pipeline_harness import BRONZE, SILVER, Died, Rig, journal, work


@pytest.fixture
def rig(url: str, tmp_path: Path) -> Rig:
    return Rig(url, str(tmp_path / "jobs.lake"))


def no_spark() -> Any:
    raise AssertionError("Spark is not needed here")


def test_a_run_in_several_rounds_ends_where_one_round_does(rig: Rig, store: tampu.Store, other_url: str) -> None:
    work(store)
    work(store, 1)
    reports = rig.run(most=20)
    assert len(reports) == -(-sum(store.journal().latest.values()) // 20)
    assert rig.rows("bronze.events", "offset", "id", "verb") == journal(store)
    assert [run["run"] for run in lineage.latest(rig.lake)] == [report.run for report in reversed(reports)]
    assert sum(run["rows"]["bronze.events"] for run in lineage.latest(rig.lake)) == len(journal(store))

    # No news: no Spark, no commit.
    before = [rig.lake.table(name).open().version for name in rig.lake.present()]
    (nothing,) = Pipeline(rig.url, rig.lake).run(no_spark)
    assert not nothing.news
    assert [rig.lake.table(name).open().version for name in rig.lake.present()] == before

    # The other way round: the lake of another reader, or of another store, is refused.
    with pytest.raises(InvalidConfig, match="kept by the reader lake:main"):
        Pipeline(rig.url, rig.lake, name="other").run(no_spark)
    with tampu.open(other_url, maintenance=False) as other:
        other.publish("jobs", 1)
        with pytest.raises(InvalidConfig, match="another store"):
            Pipeline(other_url, rig.lake).run(no_spark)


def run_and_note_what_is_on_the_disk(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """In this order: each file that was synced, and "position" where the position in the store moved."""
    order: list[str] = []
    real, save = files.fsync_path, journal_readers.saving

    def sync(path: Path) -> None:
        order.append(str(path))
        real(path)

    def saving(reader: journal_readers.Reader, version: int | None) -> object:
        order.append("position")
        return save(reader, version)

    with monkeypatch.context() as patched:
        patched.setattr(files, "fsync_path", sync)
        patched.setattr(journal_readers, "saving", saving)
        rig.run()
    return order


def test_a_reader_tells_the_store_of_what_is_on_the_disk_and_keeps_one_lake_wherever_that_is_moved_to(
    rig: Rig, store: tampu.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work(store)
    order = run_and_note_what_is_on_the_disk(rig, monkeypatch)
    assert order.count("position") == 2, "registered at the start, moved at the end"
    after = order[order.index("position") + 1 :]
    assert after[-1] == "position"
    for name in rig.lake.present():
        table = rig.lake.table(name)
        version = table.open().version
        assert version == 0 or f"{table.uri}/_delta_log/{version:020}.json" in after[:-1], name

    work(store, 1)
    other = Rig(rig.url, str(tmp_path / "other.lake"))
    with pytest.raises(InvalidConfig, match="reader main keeps the lake") as refused:
        other.run()
    assert "--name" in str(refused.value.hint)
    assert not Path(other.lake.uri).exists()
    other.run_until(BRONZE, name="other")
    assert other.rows("bronze.events", "offset", "id", "verb") == journal(store)

    moved = Rig(rig.url, str(tmp_path / "moved.lake"))
    shutil.copytree(rig.lake.uri, moved.lake.uri)
    moved.run()
    assert moved.rows("bronze.events", "offset", "id", "verb") == journal(store)
    with pytest.raises(InvalidConfig, match="which has more"):
        rig.run()


def test_a_second_run_and_a_compaction_at_the_same_time_lose_and_double_nothing(rig: Rig, store: tampu.Store) -> None:
    def another(step: str) -> None:
        if step == "written":
            rig.run_until(SILVER)

    work(store)
    with pytest.raises(VersionConflict, match="another run"):
        rig.pipeline(on_step=another).run(rig.session)
    assert rig.rows("bronze.events", "offset", "id", "verb") == journal(store)
    assert len(rig.rows("silver.attempts")) == 3
    ended = {row[0] for row in rig.rows("silver.messages", "id")}

    store.reject(store.claim("jobs")[0], "bad")
    rig.run_until(SILVER)
    dead = {row[0] for row in rig.rows("silver.messages", "id", "state") if row[1] == "dead"}
    (again,) = dead & ended
    store.replay("jobs", ids=[again])
    joined: list[str] = []

    def compaction(step: str) -> None:
        if step == "walked":
            joined.extend(care.table for care in maintenance.compact(rig.lake))

    rig.pipeline(on_step=compaction).run(rig.session)
    assert "silver.messages" in joined
    assert {row[0] for row in rig.rows("silver.messages", "id")} == (ended | dead) - {again}, "replayed, so not ended"
    assert len(rig.rows("silver.messages", "id")) == 2


def test_the_reader_is_registered_before_anything_is_read(rig: Rig, store: tampu.Store) -> None:
    work(store)
    with pytest.raises(Died):
        rig.run(die="reading")
    (reader,) = journal_readers.registered(access.engine(store))
    assert (reader.name, reader.position) == ("lake:main", dict.fromkeys(store.journal().latest, 0))


def test_a_store_that_was_set_back_is_noticed(rig: Rig, store: tampu.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    work(store)
    with pytest.raises(Died):
        rig.run(die="bronze.events")
    end = store.journal().latest
    monkeypatch.setattr(rig.store(), "bounds", lambda _: (dict.fromkeys(end, 0), dict.fromkeys(end, 2)))
    with pytest.raises(StorageError, match="set back"):
        Pipeline(rig.url, rig.lake).run(no_spark)


def test_transitions_that_were_trimmed_are_not_skipped_in_silence(
    rig: Rig, store: tampu.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    work(store)
    with pytest.raises(Died):
        rig.run(die="bronze.events")
    work(store, 1)
    end = store.journal().latest
    ((part, last),) = end.items()
    monkeypatch.setattr(rig.store(), "bounds", lambda _: ({part: last - 3}, end))
    with pytest.raises(NotFound, match="trimmed before the lake had them"):
        Pipeline(rig.url, rig.lake).run(no_spark)
    with pytest.raises(Died):
        rig.run(die="bronze.events", skip_lost=True)
    assert [row[0] for row in rig.rows("bronze.events", "offset")][-3:] == [last - n for n in (2, 1, 0)]


def test_status_tells_before_and_after(rig: Rig, store: tampu.Store) -> None:
    before = status(rig.url, Lake(rig.lake.uri), "main")
    assert (before["registered"], before["tables"], before["lag_messages"]) == (False, [], 0)
    store.publish("jobs", 1)
    behind = status(rig.url, Lake(rig.lake.uri), "main")
    assert behind["lag_messages"] == 1
    assert 0 <= behind["lag_seconds"] < 600
