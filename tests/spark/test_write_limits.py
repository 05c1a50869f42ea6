"""Rows become messages like all others: what the queue says of groups and of the order holds for them. No Spark here."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

import tampu
from tests.spark.hands import Hands, batch_writer, hands


@pytest.fixture
def tasks(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hands]:
    made = hands(monkeypatch)
    yield made
    made.close()


def test_rows_of_a_group_keep_its_rate(url: str, q: tampu.Queue, tasks: Hands) -> None:
    q.queues.put("jobs", group_rate=0.001, group_burst=1)
    q.publish("jobs", "first", group="a")
    schema = StructType([StructField("payload", StringType()), StructField("group", StringType())])
    writer = batch_writer(url, schema)
    batch = pa.record_batch([pa.array(["x", "y"]), pa.array(["a", "b"])], names=["payload", "group"])
    writer.commit([tasks.write_batches(writer, [batch])])
    assert sorted(lease.payload for lease in q.claim("jobs", limit=9)) == ["first", "y"]


def test_a_queue_of_written_rows_can_be_ordered_by_priority_later(url: str, q: tampu.Queue, tasks: Hands) -> None:
    schema = StructType([StructField("payload", StringType()), StructField("priority", LongType())])
    writer = batch_writer(url, schema)
    batch = pa.record_batch([pa.array(["low", "high"]), pa.array([1, 2])], names=["payload", "priority"])
    writer.commit([tasks.write_batches(writer, [batch])])
    q.queues.put("jobs", ordering="priority")
    assert [lease.payload for lease in q.claim("jobs", limit=2)] == ["high", "low"]
