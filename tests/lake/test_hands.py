"""Who does the work: the same comes of it here and on executors, and a worker that dies leaves nothing that counts."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from tampu.lake import sheets, silver
from tampu.lake.files import DataFile, Place
from tampu.lake.hands import Hands, divided
from tampu.lake.sheets import Rows, Target

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = pa.schema([("n", pa.int64()), ("day", pa.date32()), ("tenant", pa.string())])
DAY = date(2026, 1, 1)


def rows(numbers: range) -> pa.Table:
    return pa.Table.from_pylist([{"n": n, "day": DAY, "tenant": "default"} for n in numbers], schema=SCHEMA)


def numbers(target: Target, files: list[DataFile]) -> list[int]:
    return sorted(n for batch in sheets.read_batches(target.place, SCHEMA, files) for n in batch.column(0).to_pylist())


def test_parts_are_divided_into_heaps_of_about_the_same_size() -> None:
    heaps = divided(list(range(10)), [100, 1, 1, 1, 1, 1, 1, 1, 1, 50], 3)
    assert sorted(sorted(heap) for heap in heaps) == [[0], [1, 2, 3, 4, 5, 6, 7, 8], [9]]
    assert divided([], [], 3) == [[]]


def test_a_worker_that_is_killed_after_writing_leaves_nothing_that_counts(spark: SparkSession, tmp_path: Path) -> None:
    target = Target("numbers", Place(str(tmp_path / "numbers"), {}), SCHEMA, True)
    killed = tmp_path / "killed"

    def act(part: range) -> Iterator[tuple[str, Rows]]:
        yield "numbers", rows(part)
        if part.start == 0 and not killed.exists():
            # Its file is on the disk by now, and told to nobody.
            assert list(sheets.write_batches(target, "t", [rows(part)]))
            killed.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    parts = [range(5), range(5, 12)]
    found = Hands(lambda: spark, 0).write(parts, act, [5, 7], 12, [target], "t")["numbers"]
    assert killed.exists()
    assert numbers(target, found) == list(range(12))
    assert len(list(Path(target.place.uri).rglob("*.parquet"))) > len(found), "what it wrote is there, and is not named"


def test_rows_are_brought_together_as_here(spark: SparkSession) -> None:
    def read(part: range) -> Iterator[pa.RecordBatch]:
        yield from rows(part).to_batches()

    def act(table: pa.Table) -> Iterator[str]:
        yield ",".join(map(str, sorted(table["n"].to_pylist())))

    parts = [range(6), range(6, 9)]

    def gathered(few: int) -> list[str]:
        hands = Hands(lambda: spark, few)
        by_rest = lambda whole, _: whole.repartitionById(3, whole["n"].cast("int") % 3)  # noqa: E731 - a short one
        return sorted(hands.gathered(parts, read, [6, 3], 9, SCHEMA, by_rest, act))

    assert gathered(0) == ["0,3,6", "1,4,7", "2,5,8"]
    assert gathered(9) == ["0,1,2,3,4,5,6,7,8"]


def test_nothing_to_do_needs_no_spark() -> None:
    def no_spark() -> SparkSession:
        pytest.fail("Spark was asked for")

    assert Hands(no_spark, 0).each([], lambda _: [], [], 10**9) == []
    assert not Hands(no_spark).enough(1000)


def test_all_rows_of_a_message_come_into_one_task_and_large_tenants_into_several(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(silver, "ROWS", 50)
    monkeypatch.setattr(silver, "_LITTLE", 20)
    schema = pa.schema([("tenant", pa.string()), ("id", pa.string())])
    counts = {"large": 300, "middle": 90, "small": 9, "tiny": 1}
    told = [{"tenant": tenant, "id": str(n // 3)} for tenant, count in counts.items() for n in range(count)]

    def read(part: range) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pylist([told[n] for n in part], schema=schema)

    def act(here: pa.Table) -> Iterator[str]:
        yield json.dumps([list(row.values()) for row in here.to_pylist()])

    parts = [range(n, len(told), 2) for n in range(2)]
    hands = Hands(lambda: spark, 0)
    tasks = list(map(json.loads, hands.gathered(parts, read, [200, 200], 400, schema, silver.spread(counts), act)))
    assert sorted(row for task in tasks for row in task) == sorted([row["tenant"], row["id"]] for row in told)
    homes: dict[str, set[int]] = {}
    for number, task in enumerate(tasks):
        for who in map(tuple, task):
            homes.setdefault("/".join(who), set()).add(number)
    assert all(len(where) == 1 for where in homes.values())
    wide = {tenant: set().union(*(homes[who] for who in homes if who.startswith(f"{tenant}/"))) for tenant in counts}
    assert len(wide["large"]) > 1
    assert len(wide["small"]) == len(wide["tiny"]) == 1
    assert max(map(len, tasks)) <= 3 * silver.ROWS, "chance divides the messages, but no task has all"


@pytest.mark.parametrize("own", ["America/New_York", None])
def test_the_time_zone_of_the_session_is_what_it_was(spark: SparkSession, own: str | None) -> None:
    zone = "spark.sql.session.timeZone"
    before = spark.conf.get(zone) or "UTC"
    try:
        spark.conf.unset(zone) if own is None else spark.conf.set(zone, own)
        default = spark.conf.get(zone)
        found = Hands(lambda: spark, 0).each([1], lambda _: [], [1], 1)
        assert (found, spark.conf.get(zone)) == ([], default)
    finally:
        spark.conf.set(zone, before)
