"""df.write.format("tampu"): rows become messages, once, whatever happens to tasks and jobs."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import tampu
from tampu.broker import access
from tampu.spark.write import publish
from tests.spark.writer_driver import staged

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def save(df: DataFrame, url: str, **options: Any) -> None:
    df.write.format("tampu").mode("append").options(url=url, **{"queue": "jobs", **options}).save()


def payloads(store: tampu.Store, queue: str = "jobs") -> list[Any]:
    return [message.payload for message in store.messages(queue, limit=10_000)]


def test_rows_become_messages_in_their_order_with_the_columns_they_have(
    spark: SparkSession, url: str, store: tampu.Store
) -> None:
    at = datetime(2100, 1, 1, tzinfo=UTC)
    store.queues.put("vip", ordering="priority")
    df = spark.createDataFrame(
        [
            ("a", None, None, None, None, None, None, None, None, None),
            ("b", "vip", "email.send", 5, None, None, {"x": "y"}, "k", 7, "g"),
            ("c", None, None, None, at, None, None, None, None, None),
            ("d", "vip", None, 9, None, 60.5, None, None, None, None),
        ],
        "payload string, queue string, type string, priority int, run_at timestamp, ttl double,"
        " headers map<string,string>, key string, max_attempts int, group string",
    )
    save(df.coalesce(1), url)
    first, *_ = store.messages("jobs")
    assert (first.payload, first.content_type, first.type, first.state) == ("a", "text/plain", "message", "ready")
    (later,) = store.messages("jobs", state="delayed")
    assert (later.payload, later.run_at) == ("c", at)
    d, b = store.claim("vip", limit=2)
    assert (b.payload, b.message.type, b.message.headers, b.message.key) == ("b", "email.send", {"x": "y"}, "k")
    assert (b.message.max_attempts, b.message.group, b.message.priority) == (7, "g", 5)
    assert (d.payload, d.message.expires_at) == ("d", d.message.created_at + timedelta(seconds=60.5))
    assert staged(url) == []
    assert access.engine(store).documents(publish.JOBS, "default") == []


def test_payloads_of_any_type_and_of_ten_megabytes(spark: SparkSession, url: str, store: tampu.Store) -> None:
    df = spark.sql(
        "SELECT named_struct('day', date'2026-02-03', 'sum', 1.50BD, 'raw', X'ff00', 'none', null,"
        " 'at', timestamp'2026-02-03 04:05:06Z', 'map', map('a', array(1, 2)), 'any', parse_json('{\"v\": [1]}'),"
        " 'large', repeat('x', 10485760)) AS payload"
    )
    store.queues.put("jobs", max_payload=11 << 20)
    save(df, url)
    (found,) = payloads(store)
    assert len(found.pop("large")) == 10 << 20
    assert found == {
        "day": "2026-02-03", "sum": 1.5, "raw": "/wA=", "none": None, "at": "2026-02-03T04:05:06Z",
        "map": {"a": [1, 2]}, "any": {"v": [1]},
    }  # fmt: skip
    save(df.where("false"), url, queue="none")
    assert store.queues.list() == ["jobs"]


def test_a_job_of_skewed_partitions_that_is_run_again_changes_nothing(
    spark: SparkSession, url: str, store: tampu.Store
) -> None:
    df = spark.range(0, 12_000, 1, 1).union(spark.range(0, 3, 1, 1)).selectExpr("cast(id as string) payload")
    for _ in range(2):
        save(df, url, jobId="nightly")
        assert store.stats("jobs").counts["ready"] == 12_003
    transitions = store.journal(limit=20_000).transitions
    assert len({t.id for t in transitions}) == len(transitions) == 12_003
    assert {t.id[14] for t in transitions} == {"8"}
    assert payloads(store)[9_999] == "9999"


def test_a_task_that_fails_after_its_rows_are_staged_leaves_no_second_copy(
    spark: SparkSession, url: str, store: tampu.Store, tmp_path: Path
) -> None:
    fuse = tmp_path / "fuse"
    fuse.touch()
    name = str(fuse)

    def burn(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        if Path(name).exists():
            Path(name).unlink()
            raise RuntimeError("the first attempt fails when all its rows are out")

    df = spark.range(0, 50, 1, 1).selectExpr("cast(id as string) payload").mapInArrow(burn, "payload string")
    save(df, url)
    assert not fuse.exists()
    assert payloads(store) == [str(n) for n in range(50)]
    assert [t.verb for t in store.journal().transitions] == ["publish"] * 50
    assert staged(url) == []


def test_bad_rows_fail_the_job_before_anything_is_published(spark: SparkSession, url: str, store: tampu.Store) -> None:
    df = spark.createDataFrame(
        [("a", "t"), (None, "t"), ("c", "no type!"), ("d" * 300_000, "t")], "payload string, type string"
    ).coalesce(1)
    with pytest.raises(Exception, match="3 of 4 rows cannot become messages and nothing was published") as failed:
        save(df, url)
    text = str(failed.value)
    assert "partition 0 row 1: the payload is null" in text
    assert "row 2: 'no type!' is not a type name" in text
    assert "row 3: the payload has 300000 bytes" in text
    assert store.queues.list() == []
    assert staged(url) == []


def test_bad_rows_are_set_aside_when_asked(spark: SparkSession, url: str, store: tampu.Store, tmp_path: Path) -> None:
    aside = str(tmp_path / "aside")
    df = spark.createDataFrame([("a", 1), (None, 2), ("c", 3)], "payload string, max_attempts int").coalesce(1)
    df = df.selectExpr("payload", "if(max_attempts = 3, 5000, max_attempts) as max_attempts")
    save(df, url, badRows=aside, jobId="j")
    assert payloads(store) == ["a"]
    rows = sorted(spark.read.parquet(aside).collect(), key=lambda row: row.row)
    assert [(row.job, row.partition, row.row, row.field) for row in rows] == [
        ("j", 0, 1, "payload"),
        ("j", 0, 2, "max_attempts"),
    ]
    assert rows[1].columns == '{"payload":"c","max_attempts":5000}'
    assert "between 1 and 1000" in rows[1].error
