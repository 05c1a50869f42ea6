"""Grouped rows of a DataFrame are held to the limits of their queue's groups, as any other message. No Spark here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructField, StructType

import tampu
from tests.spark.writer_driver import TEXT, WriteTasks, batch_writer, write_tasks

GROUPED = StructType([*TEXT, StructField("group", StringType())])
TYPED = StructType([*TEXT, StructField("type", StringType())])


@pytest.fixture
def tasks(monkeypatch: pytest.MonkeyPatch) -> Iterator[WriteTasks]:
    made = write_tasks(monkeypatch)
    yield made
    made.close()


def _write(url: str, tasks: WriteTasks, schema: StructType, count: int) -> None:
    columns = [pa.array([str(n) for n in range(count)]), pa.array(["a"] * count)]
    writer = batch_writer(url, schema)
    writer.commit([tasks.write_batches(writer, [pa.record_batch(columns, names=schema.names)])])


@pytest.mark.parametrize("queue", ["new", "used", "inherits"])
@pytest.mark.parametrize(
    ("limits", "at_once"),
    [
        ({"group_rate": 0.001, "group_burst": 2}, 2),
        ({"group_concurrency": 3}, 3),
        ({"group_rate": 0.001, "group_burst": 2, "group_concurrency": 3}, 2),
        ({"group_order": True}, 1),
    ],
    ids=lambda given: "+".join(given) if isinstance(given, dict) else "",
)
def test_grouped_rows_keep_the_limits_of_their_queue(
    url: str, store: tampu.Store, tasks: WriteTasks, limits: dict[str, Any], at_once: int, queue: str
) -> None:
    store.queues.put("*" if queue == "inherits" else "jobs", **limits)
    if queue == "used":
        store.publish("jobs", "before", group="b")
    _write(url, tasks, GROUPED, 6)
    claimed = store.claim("jobs", limit=20)
    assert sum(lease.message.group == "a" for lease in claimed) == at_once
    more = store.publish("jobs", "after", group="a")
    assert store.claim("jobs", limit=20) == [], "nor does anybody else go faster"
    assert store.get(more.id).state in ("held", "delayed")


def test_rows_that_are_grouped_by_type_keep_the_rate_of_their_type(
    url: str, store: tampu.Store, tasks: WriteTasks
) -> None:
    store.queues.put("jobs", group_by="type", group_rate=0.001, group_burst=2)
    _write(url, tasks, TYPED, 6)
    assert len(store.claim("jobs", limit=20)) == 2
