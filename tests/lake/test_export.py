"""Export: the file holds what the lake says, in each format, and is whole or not there."""

import base64
import csv
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tampu.lake.export import export
from tampu.lake.query import Lake
from tampu.lake.tables import BY_NAME
from tampu.model.errors import InvalidMessage, InvalidState, TampuError
from tests.lake import sample


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    folder = tmp_path / "lake"
    rows = [sample.ended(n, labels={"ü": 'say "hi",\n'} if n == 2 else None) for n in (1, 2, 3)]
    rows[2]["payload"] = b"\xff\x00"
    sample.write(folder, "bronze.messages", [*rows, sample.ended(4, tenant="other", priority=2**62)])
    return Lake(folder)


def test_parquet_keeps_types_and_bytes(lake: Lake, tmp_path: Path):
    assert export(lake, "bronze.messages", tmp_path / "out.parquet") == 4
    found = pq.read_table(tmp_path / "out.parquet")
    assert found.schema.names == BY_NAME["bronze.messages"].schema.names
    assert sorted(found["payload"].to_pylist())[-1] == b"\xff\x00"
    assert max(found["priority"].to_pylist()) == 2**62


def test_csv_is_quoted_and_null_is_empty(lake: Lake, tmp_path: Path):
    export(lake, "SELECT id, labels, ended_at, payload, key FROM bronze.messages ORDER BY id", tmp_path / "out.csv")
    with (tmp_path / "out.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["key"] for row in rows] == [""] * 4
    assert json.loads(rows[1]["labels"]) == {"ü": 'say "hi",\n'}
    assert rows[0]["ended_at"] == "2026-03-02T00:01:00+00:00"
    assert base64.b64decode(rows[2]["payload"]) == b"\xff\x00"


def test_json_and_json_lines_say_the_same(lake: Lake, tmp_path: Path):
    query = "SELECT *, 'nan'::DOUBLE AS odd, 1.5::DECIMAL(9, 2) AS cost FROM bronze.messages ORDER BY id"
    assert export(lake, query, tmp_path / "out.json") == export(lake, query, tmp_path / "out.jsonl") == 4
    whole = json.loads((tmp_path / "out.json").read_text())
    assert whole == [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert whole[0]["odd"] is None
    assert whole[3]["priority"] == 2**62


@pytest.mark.parametrize(("name", "text"), [("e.json", "[]\n"), ("e.jsonl", ""), ("e.csv", "queue,day\n")])
def test_nothing_is_an_empty_file_with_its_columns(name: str, text: str, lake: Lake, tmp_path: Path):
    assert export(lake, "SELECT queue, day FROM gold.failures", tmp_path / name) == 0
    assert (tmp_path / name).read_text() == text


def test_where_and_tenant_choose_rows(lake: Lake, tmp_path: Path):
    assert export(lake, "bronze.messages", tmp_path / "a.jsonl", where="ended_offset >= 20 -- all") == 3
    assert export(lake, "bronze.messages", tmp_path / "b.jsonl", where="ended_offset >= 20", tenant="other") == 1


def test_file_that_is_there_is_kept_without_force(lake: Lake, tmp_path: Path):
    target = tmp_path / "out.csv"
    target.write_text("mine")
    with pytest.raises(InvalidState, match="--force"):
        export(lake, "bronze.messages", target)
    assert target.read_text() == "mine"
    export(lake, "bronze.messages", target, force=True)
    assert target.read_text() != "mine"


@pytest.mark.parametrize(
    ("what", "name", "where"),
    [
        ("bronze.nothing", "out.csv", None),
        ("SELECT * FRM bronze.events", "out.csv", None),
        ("SELECT CAST('x' || range AS INT) FROM range(5)", "out.csv", None),
        ("SELECT CAST(if(range = 90000, 'x', '1') AS INT) FROM range(100000)", "out.csv", None),
        ("DROP VIEW bronze.events", "out.csv", None),
        ("bronze.events", "out.xls", None),
        ("bronze.events", "no/folder.csv", None),
        ("bronze.events", "out.csv", "true) UNION (SELECT 1"),
    ],
)
def test_export_that_fails_leaves_nothing(what: str, name: str, where: str | None, lake: Lake, tmp_path: Path):
    before = sorted(tmp_path.iterdir())
    with pytest.raises(TampuError):
        export(lake, what, tmp_path / name, where=where)
    assert sorted(tmp_path.iterdir()) == before


def test_table_must_be_known(lake: Lake, tmp_path: Path):
    with pytest.raises(InvalidMessage, match=r"bronze\.events"):
        export(lake, "events", tmp_path / "out.csv")
