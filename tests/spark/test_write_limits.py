"""Rows become messages like all others: the limits, order and publish steps of the queue hold. No Spark here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

import tampu
from tampu.broker import publish_steps
from tampu.broker.publish_steps import Batch, Draft
from tampu.broker.settings import Settings
from tests.spark.writer_driver import WriteTasks, batch_writer, write_tasks


@pytest.fixture
def tasks(monkeypatch: pytest.MonkeyPatch) -> Iterator[WriteTasks]:
    made = write_tasks(monkeypatch)
    yield made
    made.close()


def test_rows_of_a_group_keep_its_rate(url: str, store: tampu.Store, tasks: WriteTasks) -> None:
    store.queues.put("jobs", group_rate=0.001, group_burst=1)
    store.publish("jobs", "first", group="a")
    schema = StructType([StructField("payload", StringType()), StructField("group", StringType())])
    writer = batch_writer(url, schema)
    batch = pa.record_batch([pa.array(["x", "y"]), pa.array(["a", "b"])], names=["payload", "group"])
    writer.commit([tasks.write_batches(writer, [batch])])
    assert sorted(lease.payload for lease in store.claim("jobs", limit=9)) == ["first", "y"]


def test_a_queue_of_written_rows_can_be_ordered_by_priority_later(
    url: str, store: tampu.Store, tasks: WriteTasks
) -> None:
    schema = StructType([StructField("payload", StringType()), StructField("priority", LongType())])
    writer = batch_writer(url, schema)
    batch = pa.record_batch([pa.array(["low", "high"]), pa.array([1, 2])], names=["payload", "priority"])
    writer.commit([tasks.write_batches(writer, [batch])])
    store.queues.put("jobs", ordering="priority")
    assert [lease.payload for lease in store.claim("jobs", limit=2)] == ["high", "low"]


class Mirror:
    """Odd rows go to another queue; all are copied to a third."""

    def wants(self, queue: str, settings: Settings) -> bool:
        return queue == "jobs"

    def apply(self, batch: Batch, drafts: Sequence[Draft]) -> None:
        for draft in drafts:
            batch.copy(draft, "mirror", "mirror")
            if int(draft.payload) % 2:
                draft.queue = "odd"


@pytest.mark.parametrize("on_commit", ["true", "false"])
def test_rows_go_through_the_publish_steps_once(
    url: str, store: tampu.Store, tasks: WriteTasks, on_commit: str
) -> None:
    with publish_steps.registered(Mirror()):
        for _ in range(2):
            writer = batch_writer(url, jobId="j", onCommit=on_commit)
            writer.commit([tasks.write(writer, [str(n) for n in range(5)])])
    found = {name: [m.payload for m in store.messages(name)] for name in ("jobs", "odd", "mirror")}
    assert found == {"jobs": ["0", "2", "4"], "odd": ["1", "3"], "mirror": ["0", "1", "2", "3", "4"]}
