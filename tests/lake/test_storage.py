"""A table of the lake: rows and position change together, once, durably; what does not count is never read."""

from __future__ import annotations

import json
import os
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from tampu import InvalidConfig, NotFound, VersionConflict
from tampu.lake import maintenance
from tampu.lake.storage import Lake, LakeTable, files, frames, parquet
from tampu.lake.storage.files import DataFile, Place
from tampu.lake.storage.snapshots import Mark, exactly
from tampu.lake.tables import BY_NAME, TIME, Table
from tampu.model.errors import SchemaMismatch, Unavailable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = pa.schema([("offset", pa.int64()), ("at", TIME), ("day", pa.date32()), ("tenant", pa.string())])
SPEC = Table("bronze.numbers", 1, "numbers", ("offset",), SCHEMA)
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "a lake[1]")


@pytest.fixture
def table(lake: Lake) -> LakeTable:
    return lake.table(SPEC)


def batch(*numbers: int, tenant: str = "default", at: datetime = NOON) -> pa.RecordBatch:
    rows = [{"offset": n, "at": at, "day": at.date(), "tenant": tenant} for n in numbers]
    return pa.RecordBatch.from_pylist(rows, schema=SCHEMA)


def written(table: LakeTable, *batches: pa.RecordBatch) -> list[DataFile]:
    return list(parquet.write_batches(table.target, "t", batches))


def mark(run: int, offset: int) -> Mark:
    return Mark("lake:main", run, {"0": offset})


def offsets(table: LakeTable) -> list[int]:
    found: list[int] = table.open().arrow().to_table()["offset"].to_pylist()
    return sorted(found)


@pytest.mark.parametrize("uri", ["ftp://host/lake", "s4://bucket/lake"])
def test_a_lake_where_none_can_be_is_refused_with_what_there_is(uri: str) -> None:
    with pytest.raises(InvalidConfig, match=uri.partition("://")[0]) as raised:
        Lake(uri)
    assert "s3, " in (raised.value.hint or "")


def test_rows_and_position_are_one_commit(table: LakeTable) -> None:
    found = table.create({"tampu.reader": "lake:main"})
    assert found.position("lake:main", ["0"]) == {"0": 0}
    found.commit(written(table, batch(1, 2, 3)), mark(1, 3))
    found = table.open()
    assert (found.position("lake:main", ["0"]), found.run("lake:main"), found.rows()) == ({"0": 3}, 1, 3)
    assert (found.property("tampu.reader"), found.schema_version()) == ("lake:main", 1)


def test_the_position_outlives_the_log_entry_that_brought_it(table: LakeTable) -> None:
    table.create().commit(written(table, batch(1)), mark(1, 1))
    table.open().delta.create_checkpoint()
    for entry in Path(table.uri, "_delta_log").glob("*.json"):
        entry.unlink()
    assert table.open().position("lake:main", ["0"]) == {"0": 1}


def test_of_two_runs_on_the_same_version_the_second_is_refused(table: LakeTable) -> None:
    one = table.create()
    two = table.open()
    one.commit(written(table, batch(1, 2)), mark(1, 2))
    with pytest.raises(VersionConflict, match="another run"):
        two.commit(written(table, batch(1, 2)), mark(1, 2))
    assert offsets(table) == [1, 2]


def test_a_compaction_in_between_does_not_stop_a_run(lake: Lake, table: LakeTable) -> None:
    table.create().commit(written(table, batch(1)), mark(1, 1))
    table.open().commit(written(table, batch(2)), mark(2, 2))
    run = table.open()
    assert maintenance._compact(table, 1 << 20).files == 2
    run.commit(written(table, batch(3)), mark(3, 3))
    assert offsets(table) == [1, 2, 3]
    assert len(table.open().files()) == 2


def test_a_compaction_of_files_that_are_gone_changes_nothing(table: LakeTable) -> None:
    table.create().commit([*written(table, batch(1)), *written(table, batch(2))], mark(1, 2))
    old = table.open()
    table.open().commit(written(table, batch(9)), mark(2, 3), drop=lambda known: known)
    with pytest.raises(VersionConflict):
        old.commit([], None, drop=exactly(f.path for f in old.files()), tidy=True)
    assert offsets(table) == [9]


def test_days_are_replaced_whole(table: LakeTable) -> None:
    next_day = NOON + timedelta(days=1)
    table.create().commit(written(table, batch(1, 2), batch(3, at=next_day)), mark(1, 3))
    new = written(table, batch(7))
    table.open().commit(new, mark(2, 3), drop=lambda known: [file for file in known if file.day == "2026-01-31"])
    assert offsets(table) == [3, 7]
    assert sorted(str(file.day) for file in table.open().files()) == ["2026-01-31", "2026-02-01"]


def test_files_past_a_position_are_found_without_reading_them(table: LakeTable) -> None:
    table.create().commit([*written(table, batch(1, 2)), *written(table, batch(3, 4))], mark(1, 4))
    assert [file.rows for file in table.open().files(after={"0": 2})] == [2]
    assert table.open().files(after={"0": 4}) == []
    assert table.open().files()[0].newest == NOON


def test_rows_are_split_by_day_and_tenant_in_their_order(table: LakeTable) -> None:
    table.create()
    mixed = [batch(n, tenant=f"t:{n % 3}", at=NOON + timedelta(days=n % 2)) for n in range(12)]
    rows = pa.Table.from_batches(mixed).combine_chunks().to_batches()
    new = written(table, *rows)
    assert {(file.day, file.tenant) for file in new} == {
        (d, f"t:{t}") for d in ("2026-01-31", "2026-02-01") for t in range(3)
    }
    read = [b.column("offset").to_pylist() for b in parquet.read_batches(table.place, SCHEMA, new)]
    assert all(part == sorted(part) for part in read)
    assert sorted(n for part in read for n in part) == list(range(12))


def test_large_rows_are_read_a_few_at_a_time(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    table = lake.table("bronze.messages")
    table.create()
    rows = [{"id": str(n), "payload": bytes(10_000), "day": NOON.date(), "tenant": "default"} for n in range(20)]
    new = written(table, pa.RecordBatch.from_pylist(rows, schema=table.spec.schema))
    monkeypatch.setattr(parquet, "_READ", 50_000)
    read = [b.column("id").to_pylist() for b in parquet.read_batches(table.place, table.spec.schema, new)]
    assert max(map(len, read)) <= 5
    assert [id for part in read for id in part] == [str(n) for n in range(20)]


def test_more_tenants_than_files_may_be_open(table: LakeTable) -> None:
    table.create()
    twice = [batch(n, tenant=f"t{n % 100}") for n in range(200)]
    new = written(table, pa.Table.from_batches(twice[:100]).combine_chunks().to_batches()[0], *twice[100:])
    assert sum(file.rows for file in new) == 200
    assert {file.tenant for file in new} == {f"t{n}" for n in range(100)}


def test_new_columns_are_added_and_null_in_old_rows(lake: Lake, table: LakeTable) -> None:
    table.create().commit(written(table, batch(1)), mark(1, 1))
    wider = Table("bronze.numbers", 2, "numbers", ("offset",), SCHEMA.append(pa.field("note", pa.string())))
    newer = lake.table(wider)
    found = newer.create()
    row = pa.RecordBatch.from_pylist([{**batch(2).to_pylist()[0], "note": "x"}], schema=wider.schema)
    found.commit(written(newer, row), mark(2, 2))
    assert newer.open().schema_version() == 2
    read = newer.open().arrow().to_table().sort_by("offset")
    assert read["note"].to_pylist() == [None, "x"]
    assert sum(rows.num_rows for rows in newer.open().peeked(["offset", "note"], newer.open().files())) == 2
    with pytest.raises(SchemaMismatch, match="upgrade"):
        table.create()


def test_files_with_columns_of_a_newer_tampu_are_not_joined(lake: Lake) -> None:
    known = BY_NAME["gold.tenant_days"]
    newer = Table(known.name, known.version + 1, known.about, known.key, known.schema.append(pa.field("c", pa.int64())))
    table = lake.table(newer)
    table.create()
    for n in (1, 2):
        row = {field.name: None for field in newer.schema} | {"day": NOON.date(), "tenant": "default", "c": n}
        rows = pa.RecordBatch.from_pylist([row], schema=newer.schema)
        table.open().commit(written(table, rows), mark(n, n))
    with pytest.raises(SchemaMismatch, match="upgrade"):
        maintenance.compact(lake)
    assert sorted(table.open().arrow().to_table()["c"].to_pylist()) == [1, 2]


def test_a_half_written_log_entry_is_put_aside(table: LakeTable) -> None:
    table.create().commit(written(table, batch(1)), mark(1, 1))
    torn = Path(table.uri, "_delta_log", f"{2:020}.json")
    torn.write_bytes(b'{"add":{"path":"x')
    found = table.create()
    assert (found.version, offsets(table)) == (1, [1])
    found.commit(written(table, batch(2)), mark(2, 2))
    assert offsets(table) == [1, 2]


def test_all_half_written_entries_at_the_end_of_a_log_are_put_aside(table: LakeTable) -> None:
    table.create().commit(written(table, batch(1)), mark(1, 1))
    for number in (2, 3):
        Path(table.uri, "_delta_log", f"{number:020}.json").write_bytes(bytes(300))
    assert (table.create().version, offsets(table)) == (1, [1])


def test_what_vacuum_tells_in_the_log_is_on_the_disk(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    table = lake.table("gold.slo")
    table.create()
    left = Path(table.uri, "2026-01-01", "left-behind.parquet")
    left.parent.mkdir()
    left.write_bytes(b"of a run that died")
    os.utime(left, (1, 1))
    log = Path(table.uri, "_delta_log")
    before, synced = set(log.iterdir()), set()
    real = files.fsync_path

    def watch(path: Path) -> None:
        synced.add(path)
        real(path)

    monkeypatch.setattr(files, "fsync_path", watch)
    assert [care.table for care in maintenance.vacuum(lake, retain_hours=1)] == ["gold.slo"]
    written = set(log.iterdir()) - before
    assert written
    assert written | {log} <= synced


def test_everything_is_on_the_disk_before_a_commit_returns(table: LakeTable, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []

    def watch(handle: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{handle}").readlink()))
        os.fsync(handle)

    monkeypatch.setattr(files, "fsync", watch)
    found = table.create()
    assert str(table.place.local) in synced
    new = written(table, batch(1))
    path = f"{table.uri}/{new[0].path}"
    assert synced[-2:] == [path, str(Path(path).parent)]
    log = Path(table.uri, "_delta_log")
    found.commit(new, mark(1, 1))
    entry = str(log / f"{1:020}.json")
    assert synced.index(path) < synced.index(entry) < len(synced) - 1 - synced[::-1].index(str(log))


def test_a_table_that_is_not_there_is_reported(table: LakeTable) -> None:
    assert not table.exists()
    with pytest.raises(NotFound, match="pipeline run"):
        table.open()


def test_a_lake_needs_a_path_and_a_format_that_there_is(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig):
        Lake("")
    with pytest.raises(InvalidConfig, match="iceberg"):
        Lake(tmp_path, {"spark.format": "iceberg"})


def test_old_days_can_be_let_go_and_their_files_removed(lake: Lake) -> None:
    table = lake.table("gold.tenant_days")
    found = table.create()
    for day in (date(2026, 1, 1), date(2026, 1, 2)):
        row = {field.name: None for field in table.spec.schema} | {"day": day, "tenant": "default", "done": 1}
        rows = pa.RecordBatch.from_pylist([row], schema=table.spec.schema)
        table.open().commit(written(table, rows), mark(day.day, day.day))
    assert [care.table for care in maintenance.drop_days(lake, date(2026, 1, 2))] == ["gold.tenant_days"]
    assert [file.day for file in table.open().files()] == ["2026-01-02"]
    with pytest.raises(InvalidConfig, match="1h"):
        maintenance.vacuum(lake, retain_hours=0)
    assert maintenance.vacuum(lake, retain_hours=1) == [], "younger than an hour: it may belong to a run"
    assert found.version == 0


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reach files as in an object store."""
    monkeypatch.setattr(Place, "local", None)


def test_files_elsewhere_are_written_and_read_through_the_object_store(table: LakeTable, elsewhere: None) -> None:
    Path(table.uri).mkdir(parents=True)
    new = written(table, batch(1, 2))
    assert new[0].size == Path(table.uri, new[0].path).stat().st_size
    (read,) = parquet.read_batches(table.place, SCHEMA, new)
    assert read == batch(1, 2)


def test_spark_reads_the_files_that_count_and_no_others(spark: SparkSession, table: LakeTable) -> None:
    found = table.create()
    assert frames.read(spark, found).count() == 0
    found.commit(written(table, batch(1, 2, tenant="b:c")), mark(1, 2))
    written(table, batch(8))  # of a run that died
    found = table.open()
    assert sorted(
        (row.offset, row.tenant, row.day, row.at.timestamp()) for row in frames.read(spark, found).collect()
    ) == [(n, "b:c", NOON.date(), NOON.timestamp()) for n in (1, 2)]
    found.overwrite(written(table, batch(5)), mark(2, 5))
    assert offsets(table) == [5]
    found = table.open()
    with pytest.raises(Unavailable, match="fault"):
        found.replace_days(written(table, batch(6)), [date(2020, 1, 1)], mark(3, 6))
    table.lake.format = "delta"
    with pytest.raises(Unavailable, match="no Delta Lake"):
        frames.read(spark, found)


def test_files_rewritten_by_another_program_are_read_too(spark: SparkSession, table: LakeTable) -> None:
    table.create().commit([*written(table, batch(1)), *written(table, batch(2))], mark(1, 2))
    table.open().delta.optimize.compact()
    found = table.open()
    assert ["=" in file.path for file in found.files()] == [True]
    assert {(row.offset, row.tenant, row.day) for row in frames.read(spark, found).collect()} == {
        (1, "default", NOON.date()),
        (2, "default", NOON.date()),
    }
    assert found.position("lake:main", ["0"]) == {"0": 2}
    assert json.loads(found.files()[0].stats)["numRecords"] == 2
