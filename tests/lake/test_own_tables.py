"""Users' own tables: built with ours, each by itself, and read like ours."""

from __future__ import annotations

import json
import sys
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

import tampu
from tampu.lake import jobs, own_tables
from tampu.lake.query import Lake
from tampu.lake.tables import Table, payloads, table
from tests.cli.run_command import Command
from tests.lake import sample
from tests.lake.pipeline_harness import Died, Rig, work
from tests.lake.tables_in_memory import frame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SHOP = '''
from tampu.lake.tables import table

@table("shop.ends_per_day", key=("tenant", "day", "queue"))
def ends_per_day(spark, silver_messages):
    """Messages that ended, by day and queue."""
    return spark.sql("SELECT queue, count(*) AS ends, day, tenant FROM {m} GROUP BY ALL", m=silver_messages)

@table("shop.per_month", key=("tenant", "day"), grain="month")
def per_month(spark, shop_ends_per_day, shop_typing):
    return spark.sql(
        "SELECT sum(ends) AS ends, CAST(trunc(day, 'month') AS date) AS day, tenant FROM {e} GROUP BY 2, 3",
        e=shop_ends_per_day,
    )

@table("shop.typing", key=("tenant", "day", "type"))
def typing(spark, silver_attempts):
    return spark.sql("SELECT type, count(*) AS n, day, tenant FROM {a} GROUP BY ALL", a=silver_attempts)
'''
TOML = '[lake]\ntables = ["shop_lake:ends_per_day", "shop_lake:per_month"]\n'
PACKAGE = "[tampu.lake_tables]\ntyping = shop_lake:typing\n"
ENDS = "SELECT tenant, day, queue, ends FROM shop.ends_per_day ORDER BY ALL"
EXPECTED = "SELECT tenant, day, queue, count(*) AS ends FROM silver.messages GROUP BY ALL ORDER BY ALL"


@table("shop.ends_per_day", key=("tenant", "day", "queue"), version=2)
def ends_per_day(spark: SparkSession, silver_messages: DataFrame) -> DataFrame:
    """The second version: with a column more."""
    return spark.sql(
        "SELECT queue, count(*) AS ends, day, tenant, max(ended_at) AS last_at FROM {m} GROUP BY ALL",
        m=silver_messages,
    )


def test_payloads_are_values_in_spark_and_in_duckdb(spark: SparkSession, tmp_path: Path) -> None:
    """From JSON and from MessagePack; what is neither, or broken, is null."""
    packed = msgspec.msgpack.encode({"order": {"total": 7, "raw": b"x"}})
    given = [
        (b'{"order": {"total": 12.5}}', "application/json"), (packed, "application/msgpack"),
        (b"\xff{", "application/json"), (b"\xc1", "application/msgpack"), (b"plain", "text/plain"), (None, None),
    ]  # fmt: skip
    rows = [
        sample.ended(n, payload=raw, content_type=kind, result='{"pages": 2}', day=date(2026, 3, 2), tenant="default")
        for n, (raw, kind) in enumerate(given)
    ]
    expected = [12.5, 7.0, None, None, None, None]
    with jobs.configured(spark, 0):
        made = payloads.parsed(frame("bronze.messages", rows))
        found = made.selectExpr("id", "payload:order.total::double AS total", "result:pages::int AS pages").collect()
    assert [(row.total, row.pages) for row in sorted(found)] == [(total, 2) for total in expected]

    sample.write(tmp_path, "bronze.messages", rows)
    with Lake(tmp_path).ask() as ask:
        rows = ask.rows(
            "SELECT payload.order.total::DOUBLE AS total, payload->>'$.order.total' AS text, result.pages::INT AS pages"
            " FROM bronze.payloads ORDER BY id"
        )
    assert [row["total"] for row in rows] == expected
    assert [row["text"] for row in rows[:2]] == ["12.5", "7"]
    assert {row["pages"] for row in rows} == {2}


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("TAMPU_URL", "jobs.db")
    for name in ("TAMPU_TENANT", "TAMPU_LAKE"):
        monkeypatch.delenv(name, raising=False)
    return Command(tmp_path / "jobs.db")


def write_shop(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("shop_lake.py").write_text(text)
    monkeypatch.delitem(sys.modules, "shop_lake", raising=False)


def install(entry_points: str) -> None:
    """A distribution in this folder, which is on the path."""
    info = Path("shop_lake-1.0.dist-info")
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: shop-lake\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(entry_points)
    sys.path.insert(0, str(Path.cwd()))


def same(command: Command) -> list[Any]:
    found: list[Any] = command.ok("sql", ENDS)["rows"]
    assert found == command.ok("sql", EXPECTED)["rows"]
    return found


def test_a_function_over_rows_is_a_table_wherever_it_runs(spark: SparkSession) -> None:
    """Ten rows, without a lake."""
    messages = [
        {"id": str(n), "queue": "orders" if n < 7 else "mails", "day": date(2026, 1, 1), "tenant": "acme"}
        for n in range(10)
    ]
    with jobs.configured(spark, 0):
        found = ends_per_day(spark, frame("silver.messages", messages)).collect()
    assert sorted((row.queue, row.ends) for row in found) == [("mails", 3), ("orders", 7)]
    assert (ends_per_day.about, ends_per_day.arguments) == (
        "The second version: with a column more",
        ["spark", "silver_messages"],
    )


def test_users_tables_are_built_with_ours_and_one_that_fails_stops_only_itself(
    command: Command, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    Path("tampu.toml").write_text(TOML)
    write_shop(SHOP.replace("count(*) AS n", "count(nothing) AS n"), monkeypatch)
    install(f"{PACKAGE}lost = no_such_module:x\n")
    with command.queue() as store:
        work(store)
    answer = command("pipeline", "run", "--once", "--json")
    report = json.loads(answer.out)
    assert answer.code == 1
    assert report["rows"]["shop.ends_per_day"] == len(same(command)) == 1
    assert set(report["failed"]) == {"lost", "shop.typing", "shop.per_month"}
    assert "no_such_module" in report["failed"]["lost"], "a package's table that cannot be loaded"
    assert "nothing" in report["failed"]["shop.typing"]
    assert "shop_typing" in report["failed"]["shop.per_month"], "it reads one that is not there"
    assert "shop.typing was not built" in caplog.text

    # It is there like ours, for whoever asks.
    found = {row["table"]: row for row in command.ok("pipeline", "status")["tables"]}
    assert (found["shop.ends_per_day"]["rows"], found["shop.ends_per_day"]["behind"]) == (1, 0)
    assert "shop.typing was not built: " in command("pipeline", "status").out
    runs = command.ok("sql", "SELECT rows, failed FROM _lineage")["rows"]
    assert [json.loads(text) for text in runs[0]] == [report["rows"], report["failed"]]
    assert command.ok("export", "shop.ends_per_day", "--to", "ends.csv")["rows"] == 1
    (own,) = command.ok("insights")["own"]
    assert (own["table"], own["about"], own["rows"]) == (
        "shop.ends_per_day",
        "Messages that ended, by day and queue",
        1,
    )
    assert "shop.ends_per_day" in command("insights").out
    command.ok("insights", "--html", "report.html")
    assert "Messages that ended, by day and queue" in Path("report.html").read_text()
    assert command.ok("sql", "FROM shop.ends_per_day", "--tenant", "nobody")["rows"] == []

    # Mended, it is built from the beginning. A replay takes an end back; a run that dies after a commit does not count
    # twice.
    write_shop(SHOP, monkeypatch)
    install(PACKAGE)
    rig = Rig(str(command.path), "jobs.lake")
    with command.queue() as store:
        work(store, 1)
    with pytest.raises(Died):
        rig.run(die="shop.ends_per_day", tables=own_tables.load().tables)
    mended = command.ok("pipeline", "run", "--once")
    assert {name: n for name, n in mended["rows"].items() if n} == {"shop.per_month": 1}
    rows = same(command)
    assert command.ok("sql", "SELECT sum(n) FROM shop.typing")["rows"] == [[len(rig.rows("silver.attempts"))]]
    assert command.ok("sql", "SELECT sum(ends) FROM shop.per_month")["rows"] == [[sum(row[3] for row in rows)]]
    assert command("pipeline", "run", "--once").out == "nothing new\n"

    # A new version is not up to date although there is nothing new; a backfill brings it too. Columns may only grow.
    latest = mended["to_position"]
    assert own_tables.behind(rig.lake, [ends_per_day], "lake:main", latest) == ["shop.ends_per_day"]
    with pytest.raises(Died):
        rig.run(die="computed", tables=[ends_per_day])
    assert own_tables.behind(rig.lake, [ends_per_day], "lake:main", latest) == ["shop.ends_per_day"], "not yet"
    other = table("shop.typing", key=("tenant", "day"))(lambda silver_messages: silver_messages.select("day", "tenant"))
    newer = rig.pipeline(tables=[ends_per_day, other]).backfill(rig.session, [date(2020, 1, 1)])
    assert newer.rows["shop.ends_per_day"] == len(same(command))
    assert command.ok("sql", "SELECT count(*) FROM shop.ends_per_day WHERE last_at IS NULL")["rows"] == [[0]]
    assert "gives other columns than before: type, n" in newer.failed["shop.typing"]
    assert own_tables.behind(rig.lake, [ends_per_day], "lake:main", latest) == []

    # Care for the lake knows it too.
    dropped = command.ok("pipeline", "vacuum", "--drop-before", "2999-01-01")["dropped"]
    assert "shop.ends_per_day" in {care["table"] for care in dropped}


def made(name: str) -> Table:
    return table(name, key=("day",))(lambda silver_messages: silver_messages)


@pytest.mark.parametrize(
    ("tables", "says"),
    [
        ([made("gold.mine")], "cannot be called"),
        ([made("Shop.x")], "cannot be called"),
        ([made('shop.x"; DROP')], "cannot be called"),
        ([made("shop.x"), made("shop.x")], "two tables"),
        ([print], "is no table"),
    ],
)
def test_tables_that_cannot_be_are_refused(tables: list[Any], says: str) -> None:
    with pytest.raises(tampu.InvalidConfig, match=says):
        own_tables.checked(tables)


def test_tables_of_packages_come_first_and_one_that_cannot_be_is_left_out(
    command: Command, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    write_shop(f"{SHOP}\nnames = 7\nagain = table('shop.ends_per_day', key=('day',))(lambda m: m)\n", monkeypatch)
    Path("tampu.toml").write_text(TOML)
    install(
        f"{PACKAGE}same = shop_lake:ends_per_day\ntwice = shop_lake:typing\nagain = shop_lake:again\n"
        "names = shop_lake:names\nlost = shop_lake:lost\nbroken = shop_broken:x\n"
    )
    Path("shop_broken.py").write_text("1 / 0")
    tables, failed = own_tables.load()
    assert [one.name for one in tables] == ["shop.typing", "shop.ends_per_day", "shop.per_month"]
    assert {name: text.partition(":")[0] for name, text in failed.items()} == {
        "again": "InvalidConfig",
        "names": "InvalidConfig",
        "lost": "AttributeError",
        "broken": "ZeroDivisionError",
    }
    assert "another table is called shop.ends_per_day" in failed["again"]
    assert "the table broken of shop_broken:x is left out: ZeroDivisionError" in caplog.text
    with command.queue():
        pass
    answer = command("pipeline", "run", "--once", "--json")
    assert (answer.code, json.loads(answer.out)["failed"]) == (1, failed)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('[lake]\ntables = ["no_such_module:x"]', "cannot be loaded"),
        ('[lake]\ntables = ["json:nothing"]', "cannot be loaded"),
        ('[lake]\ntable = ["json:dumps"]', "something else"),
        ("lake = [", "tampu.toml"),
    ],
)
def test_a_file_that_names_no_table_is_told_before_spark_is_started(
    text: str, says: str, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tampu.spark.session", lambda *_, **__: pytest.fail("Spark was started"), raising=False)
    with command.queue() as store:
        store.publish("jobs", 1)
    Path("tampu.toml").write_text(text)
    answer = command("pipeline", "run", "--once")
    assert (answer.code, says in answer.err) == (2, True), answer


def test_the_server_lets_the_tables_of_the_lake_by(command: Command) -> None:
    from tampu.server import settings

    Path("tampu.toml").write_text(f"max_wait = 7\n{TOML}")
    assert settings.load().max_wait == 7
