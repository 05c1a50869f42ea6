"""Ends are counted once for each file of silver.messages, and again when what they were counted for has changed."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from tampu.lake import gold, jobs, state
from tampu.lake.objectives import Objective
from tampu.lake.rounds import Round
from tampu.lake.storage import Lake
from tampu.lake.storage.files import DataFile
from tampu.lake.tables import PARTITION_BY, facts
from tests.lake.sample import START
from tests.lake.tables_in_memory import collected, frame

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SOON = Objective(objective="latency", target=0.9, within=5.0)
DAY = START.date()


def counted(file: str, **more: Any) -> dict[str, Any]:
    return {"file": file, "limits": facts.limits([]), "queue": "jobs", "state": "done", "n": 1, "day": DAY,
            "tenant": "default", **more}  # fmt: skip


def data_file(path: str, stats: dict[str, Any] | None = None) -> DataFile:
    return DataFile(path, 1, 1, DAY.isoformat(), "default", json.dumps({"nullCount": stats or {}}))


def test_only_files_that_are_new_or_were_counted_for_other_objectives_are_counted(tmp_path: Path) -> None:
    rows = [counted("known"), counted("known", state="dead"), counted("rewritten"), counted("old", limits="else")]
    lake, table = Lake(tmp_path), facts.ends
    write_deltalake(
        tmp_path / table.path, pa.Table.from_pylist(rows, schema=table.schema), partition_by=list(PARTITION_BY)
    )
    ends = state.table(lake, state.ENDED).open()
    work = cast(Round, SimpleNamespace(table=lambda _name: ends))
    files = [data_file(f"2026-03-02/{name}") for name in ("known", "old", "new")]
    missing, kept = gold._not_counted(work, files, ends.files(), [])
    assert sorted(file.path for file in missing) == ["2026-03-02/new", "2026-03-02/old"]
    assert [(row["file"], row["state"]) for row in kept.to_pylist()] == [("known", "done"), ("known", "dead")]
    missing, kept = gold._not_counted(work, files, ends.files(), [SOON])
    assert (len(missing), kept.num_rows) == (3, 0)


def test_objectives_without_other_limits_are_the_same_facts() -> None:
    success = Objective(objective="success", target=0.5)
    assert facts.limits([]) == facts.limits([success])
    assert len({facts.limits([]), facts.limits([SOON]), facts.limits([success, SOON])}) == 2


def test_what_is_known_is_kept_and_what_ended_elsewhere_is_noted(spark: SparkSession) -> None:
    message = {"queue": "jobs", "state": "done", "payload_bytes": 7, "deliveries": 1, "total": 3.0, "day": DAY,
               "tenant": "default"}  # fmt: skip
    messages = [message, {**message, "total": 60.0}, {**message, "queue": "moved", "deliveries": None}]
    with jobs.configured(spark, 0):
        named = frame("silver.messages", messages).selectExpr("*", "'new' AS _file")
        found = facts.ends(spark, named, frame("_facts.ends", [counted("known", n=9)]), [SOON])
        rows = collected("_facts.ends", found)
    assert {(r["file"], r["queue"], r["within"]): (r["n"], r["payload_bytes"]) for r in rows} == {
        ("known", "jobs", None): (9, None),
        ("new", "jobs", None): (2, 14),
        ("new", "jobs", 5.0): (1, 14),
        ("new", "moved", None): (0, 0),
        ("new", "moved", 5.0): (0, 0),
    }


@pytest.mark.parametrize(
    ("nulls", "sized"),
    [({"payload_bytes": 0, "result_bytes": 1}, True), ({"payload_bytes": 1}, False), ({"payload_bytes": None}, False),
     ({}, False)],
)  # fmt: skip
def test_payloads_are_only_read_where_a_file_does_not_say_how_large_they_are(
    nulls: dict[str, Any], sized: bool
) -> None:
    files = [data_file("one", {"payload_bytes": 0}), data_file("two", nulls)]
    work = SimpleNamespace(table=lambda _name: SimpleNamespace(files=lambda **_span: files))
    assert Round._sized(cast(Round, work), {}) is sized
