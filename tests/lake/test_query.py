"""The lake as DuckDB sees it: every table of the contract, and nothing beside the lake."""

import json
from datetime import date
from pathlib import Path

import duckdb
import pytest

from tampu.lake.query import Lake, checked, fetched
from tampu.lake.tables import TABLES
from tampu.model.errors import InvalidMessage, NotFound, StorageError
from tests.lake import sample


def test_missing_lake_says_how_to_make_it(tmp_path: Path):
    with pytest.raises(NotFound, match="tampu pipeline run"):
        Lake(tmp_path / "none")


def test_empty_lake_has_every_table_with_its_columns(tmp_path: Path):
    with Lake(tmp_path).ask() as lake:
        for table in TABLES:
            answer = lake.run(f"SELECT * FROM {table.name}")
            assert [column[0] for column in answer.description or ()] == table.schema.names
            assert answer.fetchall() == []


def test_rows_of_each_partition_are_found(tmp_path: Path):
    sample.write(
        tmp_path, "bronze.messages", [sample.ended(1), sample.ended(2000, tenant="acmé:1", headers={"a": "b"})]
    )
    with Lake(tmp_path).ask() as lake:
        found = lake.rows("SELECT day, tenant, headers, payload FROM bronze.messages ORDER BY day")
    assert [(row["day"], row["tenant"]) for row in found] == [
        (date(2026, 3, 2), "default"),
        (date(2026, 3, 3), "acmé:1"),
    ]
    assert found[1]["headers"] == {"a": "b"}
    assert found[0]["payload"] == b'{"n":1}'


def test_one_tenant_sees_only_its_rows(tmp_path: Path):
    sample.write(tmp_path, "bronze.messages", [sample.ended(1), sample.ended(2, tenant="other")])
    with Lake(tmp_path).ask(tenant="other") as lake:
        assert [row["tenant"] for row in lake.rows("FROM bronze.messages UNION FROM bronze.messages")] == ["other"]
    with Lake(tmp_path).ask(tenant="nobody") as lake:
        assert lake.rows("FROM bronze.messages") == []


def test_column_that_an_older_lake_lacks_is_null(tmp_path: Path):
    sample.write(tmp_path, "bronze.messages", [sample.ended(1)], leave_out=("labels", "missing", "deadline"))
    with Lake(tmp_path).ask() as lake:
        assert lake.one("SELECT labels, missing, deadline, id FROM bronze.messages")["labels"] is None
        answer = lake.run("FROM bronze.messages")
        assert [c[0] for c in answer.description or ()] == next(
            t.schema.names for t in TABLES if t.name == "bronze.messages"
        )


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM read_text('/etc/passwd')",
        "SELECT * FROM '/etc/passwd'",
        "SELECT * FROM glob('/*')",
        "COPY (SELECT 1) TO 'stolen.csv'",
        "ATTACH 'other.db'",
        "SET enable_external_access = true",
        "INSTALL httpfs",
        "DROP VIEW bronze.messages",
        "CREATE TABLE t AS SELECT 1",
        "SELECT 1; DROP VIEW bronze.messages",
        "PRAGMA database_list",
        "SELECT * FRM bronze.events",
        "SELECT nothing FROM bronze.events",
        "",
    ],
)
def test_query_can_only_read_the_lake(sql: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    with Lake(tmp_path).ask() as lake:
        with pytest.raises((InvalidMessage, StorageError)) as refused:
            list(fetched(lake.read(sql)))
        assert "\n" not in refused.value.message
        assert lake.rows("FROM bronze.messages") == []
    assert list(tmp_path.iterdir()) == []


def test_error_in_the_middle_of_an_answer_is_told_in_one_line(tmp_path: Path):
    with Lake(tmp_path).ask() as lake, pytest.raises(InvalidMessage, match="Conversion Error"):
        list(fetched(lake.read("SELECT CASE WHEN i = 40000 THEN CAST('x' || i AS INT) END FROM range(50000) t(i)")))


def test_damaged_table_is_named(tmp_path: Path):
    sample.write(tmp_path, "bronze.messages", [sample.ended(1)])
    for log in (tmp_path / "bronze/messages/_delta_log").glob("*.json"):
        log.write_text("{")
    with pytest.raises(StorageError, match=r"bronze\.messages"):
        Lake(tmp_path).connect()


def test_file_with_statistics_of_some_columns_is_not_passed_over(tmp_path: Path):
    sample.write(tmp_path, "bronze.messages", [sample.ended(1), sample.ended(2, tenant="other")])
    for log in (tmp_path / "bronze/messages/_delta_log").glob("*.json"):
        entries = [json.loads(line) for line in log.read_text().splitlines()]
        for entry in entries:
            if "add" in entry:
                stats = json.loads(entry["add"]["stats"])
                for part in ("minValues", "maxValues", "nullCount"):
                    stats[part] = {"queue": stats[part]["queue"]}
                entry["add"]["stats"] = json.dumps(stats)
        log.write_text("\n".join(map(json.dumps, entries)))
    with Lake(tmp_path).ask() as lake:
        sql = "SELECT id FROM bronze.messages WHERE state = 'dead' AND ended_offset < 15 AND tenant = 'default'"
        assert len(lake.rows(sql)) == 1
        assert len(lake.rows("SELECT id FROM bronze.messages WHERE key IS NULL")) == 2


def test_file_that_is_gone_is_a_trouble_of_the_lake_not_of_the_query(tmp_path: Path):
    sample.write(tmp_path, "bronze.messages", [sample.ended(1)])
    with Lake(tmp_path).ask() as lake:
        for file in tmp_path.rglob("*.parquet"):
            file.unlink()
        with pytest.raises(StorageError, match="vacuumed") as refused:
            lake.rows("SELECT id FROM bronze.messages WHERE state = 'dead'")
    assert refused.value.message.isprintable()


@pytest.mark.parametrize(
    "sql",
    ["EXPLAIN ANALYZE CREATE TABLE x AS SELECT 1", "explain (analyze) create table x as select 1",
     "EXPLAIN /* */ ANALYZE CREATE TABLE x(a int)", "/* */ EXPLAIN ANALYZE CREATE TABLE x(a int)"],
)  # fmt: skip
def test_what_is_explained_only_reads(sql: str) -> None:
    """EXPLAIN ANALYZE runs its statement."""
    connection = duckdb.connect()
    with pytest.raises(InvalidMessage):
        checked(connection, sql)
    assert checked(connection, "EXPLAIN ANALYZE SELECT 1") == "EXPLAIN ANALYZE SELECT 1"
