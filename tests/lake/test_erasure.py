"""Erasure: messages become anonymous, in the files that hold them and no others, and all counts stay."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

import tampu
from tampu.lake import erasure, state
from tampu.lake.storage import Lake
from tampu.lake.tables import INTERNAL, PARTITION_BY
from tests.cli.run_command import Command
from tests.lake import sample

ADA, BOB = (sample.ended(n)["id"] for n in (3, 4))
TABLES = ("bronze.events", "bronze.messages", "silver.messages", "silver.attempts", "_facts.failures", "gold.failures")


def internal(lake: Path, name: str, rows: list[dict[str, Any]]) -> None:
    (table,) = (one for one in INTERNAL if one.name == name)
    by = list(PARTITION_BY) if name != state.CARRIED else None
    write_deltalake(lake / table.path, pa.Table.from_pylist(rows, schema=table.schema), partition_by=by, mode="append")


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """Two messages of a day, one of the next, and one of another tenant that has the same id."""
    folder, day = tmp_path / "jobs.lake", timedelta(days=1)
    for rows in ([3, 4], [5]):
        at = sample.START + (day if rows == [5] else timedelta())
        for tenant in ("default", "other") if rows == [3, 4] else ("default",):
            ended = [sample.ended(n, ended_at=at, tenant=tenant, headers={"to": "ada"}, day=at.date()) for n in rows]
            sample.write(folder, "bronze.messages", ended)
            event = {"partition": "0", "at": at, "queue": "orders", "tenant": tenant}
            verbs = [("reap", "lease_until=7"), ("nack", "no ada"), ("publish", None)]
            events = [
                {**event, "offset": 100 * row["ended_offset"] + n, "id": row["id"], "verb": verb, "detail": detail}
                for row in ended
                for n, (verb, detail) in enumerate(verbs)
            ]
            sample.write(folder, "bronze.events", events)
            done = [
                {"id": r["id"], "state": "dead", "ended_at": at, "error": "no ada", "tenant": tenant} for r in ended
            ]
            sample.write(folder, "silver.messages", done)
            sample.write(folder, "silver.attempts", [{**row, "wait": 1.0, "run": 2.0} for row in done])
            facts = [{"id": r["id"], "look": "f1", "error": f"no {r['id'][-1]}", "n": 1, "day": at.date(),
                      "tenant": tenant} for r in ended]  # fmt: skip
            internal(folder, "_facts.failures", facts)
            failures = {"fingerprint": "f1", "error": f"no {rows[0]}", "attempts": len(rows), "last_at": at,
                        "sample_ids": [r["id"] for r in ended], "tenant": tenant}  # fmt: skip
            sample.write(folder, "gold.failures", [failures])
    return Lake(folder)


def files(lake: Lake) -> dict[str, set[str]]:
    return {name: {file.path for file in state.table(lake, name).open().files()} for name in TABLES}


def rows(lake: Lake, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = state.table(lake, name).open().arrow().to_table().to_pylist()
    return found


def test_only_the_files_of_a_message_are_rewritten_and_every_row_stays(lake: Lake) -> None:
    before, counts = files(lake), {name: len(rows(lake, name)) for name in TABLES}
    report = erasure.erase(lake, "default", [ADA])
    assert {one.table: (one.rows, len(one.files)) for one in report.tables} == {
        name: (3 if name == "bronze.events" else 1, 1) for name in TABLES
    }
    after = files(lake)
    for one in report.tables:
        assert before[one.table] - after[one.table] == set(one.files), "the other files are as they were"
    assert {name: len(rows(lake, name)) for name in TABLES} == counts

    own = [row for row in rows(lake, "bronze.messages") if row["tenant"] == "default"]
    assert ADA not in [row["id"] for row in own]
    (gone,) = (row for row in own if row["missing"])
    private = ("payload", "headers", "last_error", "result")
    assert [gone[name] for name in private] == [None] * 4
    (bob,) = (row for row in own if row["id"] == BOB)
    assert (bob["payload"], bob["last_error"], bob["missing"]) == (b'{"n":4}', "ValueError: no 4", False)
    for name in ("bronze.events", "silver.messages", "silver.attempts", "_facts.failures"):
        assert gone["id"] in [row["id"] for row in rows(lake, name)], "the same new id in every table"
    details = sorted(str(r["detail"]) for r in rows(lake, "bronze.events") if r["id"] == gone["id"])
    assert details == ["None", "None", "lease_until=7"]
    failures = {(row["tenant"], row["day"]): row for row in rows(lake, "gold.failures")}
    mine = failures["default", sample.START.date()]
    assert (mine["error"], mine["sample_ids"], mine["attempts"]) == (None, [gone["id"], BOB], 2)
    assert failures["other", sample.START.date()]["sample_ids"] == [ADA, BOB], "another tenant's message is another one"


def test_what_has_not_ended_or_is_not_there_is_refused(lake: Lake) -> None:
    with pytest.raises(tampu.NotFound):
        erasure.erase(lake, "default", ["nobody"])
    internal(Path(lake.uri), state.CARRIED, [{"id": ADA, "tenant": "default", "verb": "publish"}])
    with pytest.raises(tampu.InvalidState, match="not ended"):
        erasure.erase(lake, "default", [ADA])
    assert erasure.erase(lake, "other", [ADA]).rows > 0


def test_the_report_can_be_checked_again(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("TAMPU_TENANT", "TAMPU_LAKE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TAMPU_URL", "jobs.db")
    command = Command(tmp_path / "jobs.db")
    words = ("pipeline", "erase", "--where", "payload.n = 4", "--tenant", "default")
    assert command.ok(*words, "--dry-run") == {"ids": [BOB]}
    assert command(*words).code != 0, "nobody is there to ask"
    done = command.ok(*words, "--yes", "--report", "erased.json")
    assert done["ids"] == [BOB]
    assert command("pipeline", "erase", BOB, "--yes", "--tenant", "default").code == 3
    check = ("pipeline", "erase", "--verify", "erased.json")
    left = command(*check)
    assert (left.code, left.out.count("old files are there until")) == (1, len(TABLES))
    for one in done["tables"]:
        for path in one["files"]:
            Path(lake.uri, state.table(lake, one["table"]).spec.path, path).unlink()
    assert command(*check).out == "nothing is left\n"
    report = json.loads(Path("erased.json").read_text())
    Path("erased.json").write_text(json.dumps({**report, "ids": [ADA], "tables": []}))
    assert "bronze.messages: 1 files have rows of them" in command(*check).out
    assert command("pipeline", "erase", "--verify", "none.json").code == 2


def test_the_lake_takes_the_report_of_an_erasure_in_the_store(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("TAMPU_TENANT", "TAMPU_LAKE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TAMPU_URL", "jobs.db")
    command = Command(tmp_path / "jobs.db")
    with tampu.open("jobs.db") as store:
        store.publish("orders", 4, id=BOB, labels={"user": "42"})
        report = store.erase(label=("user", "42"))
    words = ("pipeline", "erase", "--erasure", report.id)
    assert command.ok(*words, "--dry-run") == {"ids": [BOB]}
    assert command.ok(*words, "--yes")["ids"] == [BOB]
    assert BOB not in [row["id"] for row in rows(lake, "bronze.messages") if row["tenant"] == "default"]
    assert command("pipeline", "erase", "--erasure", BOB, "--yes").code == 3
