"""What must hold of the tables: checked before a run commits, and over all rows when asked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import tampu
from tampu.lake import expectations, lineage
from tampu.lake.query import Lake
from tampu.lake.tables import silver, table
from tests.cli.run_command import Command
from tests.lake import sample
from tests.lake.journals import Telling
from tests.lake.pipeline_harness import Rig, work
from tests.lake.tables_in_memory import Keeping

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@table("shop.late", key=("id",), expect={"nobody waits for a year": "wait < 1"})
def late(silver_attempts: DataFrame) -> DataFrame:
    return silver_attempts.selectExpr("id", "claimed_at", "wait + 7 AS wait", "day", "tenant")


@table("shop.twice", key=("id",))
def twice(silver_messages: DataFrame) -> DataFrame:
    rows = silver_messages.select("id", "day", "tenant")
    return rows.union(rows)


@table(
    "shop.fine", key=("id",), expect={"of its tenant": "tenant = 'default'", "only Spark": "xxhash64(id) IS NOT NULL"}
)
def fine(silver_messages: DataFrame) -> DataFrame:
    return silver_messages.select("id", "day", "tenant")


def test_a_run_commits_nothing_that_breaks_an_expectation(
    url: str, store: tampu.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = Rig(url, str(tmp_path / "jobs.lake"))
    work(store)
    real = silver.attempts

    def wrong(spark: SparkSession, histories: DataFrame) -> DataFrame:
        return real(spark, histories).selectExpr("* EXCEPT (wait)", "wait - 1000 AS wait")

    with monkeypatch.context() as patched:
        patched.setattr(silver, "attempts", wrong)
        with pytest.raises(
            tampu.InvalidState, match=r"silver\.attempts: 3 break the expectation that wait is not"
        ) as no:
            rig.run()
    assert "--no-checks" in str(no.value.hint)
    assert rig.lake.table("bronze.events").open().rows() == len(rig.rows("bronze.events")) > 0
    for name in ("silver.attempts", "silver.messages", "gold.slo"):
        assert rig.lake.table(name).open().run("lake:main") == 0, name

    (report,) = rig.run(tables=[late, twice, fine])
    assert "shop.late: 3 break the expectation that nobody waits for a year" in report.failed["shop.late"]
    assert "shop.twice: 2 break the expectation that the key is unique" in report.failed["shop.twice"]
    assert set(report.failed) == {"shop.late", "shop.twice"}
    noted = lineage.latest(rig.lake)[0]["checks"]
    assert not [name for name in noted if name.startswith("_")], "facts add up, however often a key is there"
    assert noted["silver.attempts"] == {"wait is not negative": 0, "run is not negative": 0}
    assert noted["gold.queue_days"] == {"depth is not negative": 0, "the key is unique": 0, "ends agree": 0}
    assert noted["shop.fine"] == {"of its tenant": 0, "only Spark": 0, "the key is unique": 0}

    whole = expectations.check(Lake(rig.lake.uri), dict.fromkeys(store.journal().latest, 0))
    assert {(one.table, one.expectation) for one in whole} >= {
        ("bronze.events", expectations.WHOLE),
        ("bronze.events", expectations.UNIQUE),
        ("gold.tenant_days", expectations.AGREE),
        ("shop.fine", "of its tenant"),
    }
    assert [one for one in whole if one.broken] == []
    assert [(one.table, one.expectation) for one in whole if one.broken is None] == [("shop.fine", "only Spark")]


def test_a_run_that_read_less_than_the_journal_has_is_refused() -> None:
    counts = expectations.whole([], {"0": 3}, {"0": 10, "1": 1})
    with pytest.raises(tampu.InvalidState, match=r"bronze\.events: 8 break"):
        expectations.hold(counts, strict=True)


def test_without_checks_it_is_only_said(caplog: pytest.LogCaptureFixture) -> None:
    expectations.hold({"gold.slo": {"x holds": 2, "y holds": 0}}, strict=False)
    assert [record.getMessage() for record in caplog.records] == ["gold.slo: 2 break the expectation that x holds"]


def test_a_clock_that_goes_back_gives_no_negative_times(spark: SparkSession) -> None:
    stories = Telling()
    stories.story("a", ("publish", 10), ("claim", 5), ("ack", 4))
    kept = Keeping()
    kept.run_all(stories.events, stories.messages)
    (attempt,), (message,) = kept.tables["silver.attempts"], kept.tables["silver.messages"]
    assert (attempt["wait"], attempt["run"]) == (0.0, 0.0)
    assert (message["wait"], message["run"], message["total"]) == (0.0, 0.0, 0.0)


def test_a_check_of_all_rows_names_what_is_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("TAMPU_TENANT", "TAMPU_LAKE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TAMPU_URL", "jobs.db")
    command = Command(tmp_path / "jobs.db")
    with command.queue() as store:
        store.publish("jobs", 1)
    assert command("pipeline", "check").code == 3
    lake, at = tmp_path / "jobs.lake", sample.START
    sample.write(lake, "silver.attempts", [{"id": "a", "ended_at": at, "wait": -1.0, "run": None}])
    assert "1 broken" in command("pipeline", "check").out
    event: dict[str, Any] = {"partition": "0", "at": at, "verb": "ack", "state": "done"}
    sample.write(lake, "bronze.events", [{**event, "id": str(n), "offset": n} for n in (1, 2, 2, 5)])
    sample.write(lake, "bronze.messages", [sample.ended(1, ended_offset=n) for n in (1, 2)])
    sample.write(lake, "gold.tenant_days", [{"done": 2, "dead": 0, "cancelled": 0, "expired": 0}])
    answer = command("pipeline", "check", "--json")
    assert answer.code == 1
    broken = {(c["table"], c["expectation"]): c["broken"] for c in json.loads(answer.out)["checks"] if c["broken"]}
    assert broken == {
        ("silver.attempts", "wait is not negative"): 1,
        ("bronze.events", expectations.UNIQUE): 1,
        ("bronze.events", expectations.WHOLE): 1,
        ("bronze.messages", "each end has its message"): 1,
        ("gold.tenant_days", expectations.AGREE): 2,
        **{(f"gold.queue_{name}", expectations.AGREE): 4 for name in ("minutes", "hours", "days")},
    }
    assert "bronze.events: 1 break the expectation that the key is unique" in command("pipeline", "check").out
