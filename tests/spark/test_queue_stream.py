"""Draining a queue with Spark: what arrives, what is settled, what is refused."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

import tampu
import tampu.spark
from tampu.spark.options import Options
from tampu.spark.queue import stream as queue_stream
from tampu.spark.queue.delivery_log import of_delivery, read_head
from tampu.spark.queue.stream import QueuePartition, QueueStreamReader
from tampu.stores import columns
from tampu.stores.open_store import open_store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

# A lease so long that a query which had to wait for the one before to lapse would not end in time.
DEFAULTS = {"queue": "emails", "consumer": "billing", "leaseSeconds": 600}
Batch = Callable[["DataFrame", int], None]


def stream(spark: SparkSession, url: str, **options: Any) -> DataFrame:
    reader = spark.readStream.format("tampu").option("kind", "queue").option("url", url)
    for name, value in {**DEFAULTS, **options}.items():
        reader = reader.option(name, value)
    return reader.load()


def start(frame: DataFrame, home: Path, batch: Batch, **trigger: Any) -> StreamingQuery:
    writer = frame.writeStream.foreachBatch(batch).option("checkpointLocation", str(home / "checkpoint"))
    return writer.trigger(**(trigger or {"availableNow": True})).start()


def drain(frame: DataFrame, home: Path, batch: Batch) -> StreamingQuery:
    query = start(frame, home, batch)
    assert query.awaitTermination(120)
    return query


class Seen:
    """A sink that remembers rows by batch."""

    def __init__(self) -> None:
        self.batches: dict[int, list[Any]] = {}

    def __call__(self, frame: DataFrame, number: int) -> None:
        self.batches[number] = frame.collect()

    @property
    def rows(self) -> list[Any]:
        return [row for number in sorted(self.batches) for row in self.batches[number]]


def test_a_queue_is_drained_in_batches_and_everything_is_settled(spark, store, url, tmp_path):
    seen = Seen()
    frame = stream(spark, url, maxOffsetsPerTrigger=4, minPartitions=2)
    assert [field.name for field in frame.schema] == columns.DELIVERIES.names
    drain(frame, tmp_path, seen)
    assert seen.rows == []

    sent = store.publish_many(
        "emails", [tampu.NewMessage({"n": n}, type="mail.send", labels={"a": "b"}) for n in range(7)]
    )
    query = drain(frame, tmp_path, seen)
    assert [len(rows) for _, rows in sorted(seen.batches.items())] == [0, 4, 3]  # Spark's batch 0 may be empty
    rows = sorted(seen.rows, key=lambda row: row.delivery)
    assert [row.delivery for row in rows] == list(range(1, 8))
    assert [row.id for row in rows] == [message.id for message in sent]
    assert bytes(rows[3].payload) == b'{"n":3}'
    first = rows[0].asDict()
    assert (first["state"], first["attempts"], first["type"], first["labels"]) == ("leased", 1, "mail.send", {"a": "b"})
    assert rows[0].receipt.startswith("emails/")
    assert store.stats("emails").done == 7
    assert sum(progress.numInputRows for progress in query.recentProgress) == 7


def test_failed_rows_are_tried_again_and_then_dead_with_their_error(spark, store, url, tmp_path):
    from pyspark.sql import functions as F

    large = os.urandom(1 << 10) * (10 << 10)
    store.queues.put("emails", max_attempts=2, backoff=tampu.fixed(0, jitter="none"), max_payload=11 << 20)
    store.publish_many("emails", [b"fine", b"fails", b"broken", b"\xff\xfe\x00 not text", b"", large])
    settled: list[Any] = []
    got: list[bytes] = []

    def work(frame: DataFrame, number: int) -> None:
        frame.persist()
        got.extend(bytes(row.payload) for row in frame.collect())
        text = F.col("payload").cast("string")
        outcome = frame.select(
            "receipt",
            "delivery",
            F.when(text == "fails", F.concat(F.lit("smtp: 451, try "), F.col("attempts"))).alias("error"),
            F.when(text == "broken", "decode_failed").alias("reject"),
            F.when(text == "fine", F.struct(F.length("payload").alias("size"))).alias("result"),
        )
        settled.append(tampu.spark.settle(outcome))
        assert store.stats("emails").leased == frame.count()

    drain(stream(spark, url, minPartitions=3), tmp_path, work)
    assert sorted(got) == sorted([b"fine", b"fails", b"broken", b"\xff\xfe\x00 not text", b"", large])
    assert store.stats("emails").ready == 1  # what comes back meanwhile is for the next run
    drain(stream(spark, url), tmp_path, work)
    assert [(t.acked, t.nacked, t.rejected, t.unknown) for t in settled] == [(4, 1, 1, 0), (0, 1, 0, 0)]
    dead = {m.raw: store.get(m.id) for m in store.messages("emails", state="dead")}
    assert dead[b"broken"].reason == "decode_failed"
    assert dead[b"fails"].reason == "retries_exhausted"
    assert [failure.error for failure in dead[b"fails"].failures] == ["smtp: 451, try 1", "smtp: 451, try 2"]
    done = {m.raw: store.get(m.id) for m in store.messages("emails", state="done")}
    assert done[b"fine"].result == {"size": 4}
    assert len(done) == 4


def test_a_batch_that_fails_is_delivered_again_whole_and_survives_a_killed_worker(spark, store, url, tmp_path):
    store.publish_many("emails", range(40))
    first: list[Any] = []

    def broken(frame: DataFrame, number: int) -> None:
        first.extend((row.delivery, row.id, of_delivery(row.receipt)[0]) for row in frame.collect())
        tampu.spark.settle(frame.selectExpr("receipt", "delivery", "'not today' AS error"))
        raise RuntimeError("the sink is full")

    query = start(stream(spark, url, minPartitions=4), tmp_path, broken)
    with pytest.raises(Exception, match="the sink is full"):
        query.awaitTermination(120)
    assert store.stats("emails").leased == 40

    marker = str(tmp_path / "killed")
    columns = "delivery bigint, id string, receipt string"

    def once(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            try:
                os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                yield batch
            else:
                os.kill(os.getpid(), signal.SIGKILL)

    got: list[Any] = []

    def work(frame: DataFrame, number: int) -> None:
        rows = frame.select("delivery", "id", "receipt").mapInArrow(once, columns).collect()
        got.extend((row.delivery, row.id, of_delivery(row.receipt)[0]) for row in rows)

    drain(stream(spark, url, minPartitions=4), tmp_path, work)
    assert Path(marker).exists()
    assert sorted(got) == sorted(first)
    assert len(got) == 40
    assert store.stats("emails").done == 40


def test_a_process_that_is_killed_with_the_queue_open_does_not_stop_the_drain(spark, store, url, tmp_path):
    script = (
        "import sys, tampu\n"
        "store = tampu.open(sys.argv[1], maintenance=False)\n"
        "for n, _ in enumerate(sys.stdin):\n"
        "    store.publish_many('emails', range(20))\n"
        "    print(20 * n + 20, flush=True)\n"
    )
    command = [sys.executable, "-c", script, url]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        print("\n\n", file=other.stdin, flush=True)
        said = [int(other.stdout.readline()) for _ in range(3)][-1]
        got: list[int] = []

        def work(frame: DataFrame, number: int) -> None:
            if not got:
                print("\n" * 20, file=other.stdin, flush=True)
                other.kill()
            got.append(frame.count())

        drain(stream(spark, url, maxMessagesPerTrigger=40), tmp_path, work)
        said = max([said, *(int(line) for line in other.stdout if line.endswith("\n"))])
    states = store.stats("emails")
    assert states.leased == 0
    assert states.done == sum(got) == 60
    assert states.done + states.ready in (said, said + 20)


def beat(url: str) -> int:
    with open_store(url) as store:
        head, _ = read_head(store, "default", "emails", "billing")
    assert head is not None
    return head.beat_us


def test_a_second_query_on_the_same_consumer_is_refused(spark, store, url, tmp_path):
    store.publish("emails", 1)
    refused: list[str] = []

    def work(frame: DataFrame, number: int) -> None:
        second = start(stream(spark, url, takeoverSeconds=1), tmp_path / "other", Seen())
        with pytest.raises(Exception, match="in use by another driver") as caught:
            second.awaitTermination(120)
        refused.append(str(caught.value))
        assert frame.count() == 1

    drain(stream(spark, url), tmp_path, work)
    assert len(refused) == 1
    assert store.stats("emails").done == 1


def reader(url: str, **options: str) -> QueueStreamReader:
    """The source without Spark: the calls that Spark makes are made here."""
    return QueueStreamReader(Options({"url": url, "queue": "emails", "consumer": "billing", **options}))


def test_the_source_says_that_it_is_alive_while_a_batch_is_worked_on(store, url):
    store.publish("emails", 1)
    source = reader(url, leaseSeconds="3")
    try:
        source.latestOffset(source.initialOffset(), ReadMaxRows(5))
        for _ in range(2):
            began = beat(url)
            while beat(url) == began:
                store.claim("nothing", wait=0.1)
    finally:
        source.stop()


def test_the_backlog_that_spark_shows_is_what_is_ready(store, url):
    store.publish_many("emails", range(5))
    source = reader(url)
    try:
        assert source.reportLatestOffset() is None, "nobody owns the consumer yet"
        end = source.latestOffset(source.initialOffset(), ReadMaxRows(2))
        assert end["delivery"] == 2
        assert source.reportLatestOffset() == end | {"delivery": 5}
        store.publish("emails", 5)
        assert source.reportLatestOffset() == end | {"delivery": 6}
    finally:
        source.stop()


def test_no_fetch_can_be_larger_than_what_the_queue_takes_allows(store, url, monkeypatch):
    monkeypatch.setattr(queue_stream, "_HELD", 40_000)
    store.queues.put("emails", max_payload=10_000)
    sent = store.publish_many("emails", ["x"] * 20 + ["x" * 9_000] * 10)
    source = reader(url)
    asked: list[int] = []
    with open_store(url) as arrow:
        real = arrow.by_ids

        def by_ids(tenant: str, ids: list[str]) -> Any:
            asked.append(len(ids))
            return real(tenant, ids)

        monkeypatch.setattr(arrow, "by_ids", by_ids)
        try:
            begin = source.initialOffset()
            (part,) = source.partitions(begin, source.latestOffset(begin, ReadMaxRows(100)))
            assert isinstance(part, QueuePartition)
            batches = queue_stream.rows(arrow, "default", "emails", part.piece)
            got = [id for batch in batches for id in batch.column("id").to_pylist()]
        finally:
            source.stop()
    assert got == [message.id for message in sent]
    assert max(asked) == 4


def test_the_process_of_a_source_gives_the_consumer_up_when_spark_ends_it(store, url):
    script = (
        "import sys\n"
        "from pyspark.sql.streaming.datasource import ReadMaxRows\n"
        "from tampu.spark.options import Options\n"
        "from tampu.spark.queue.stream import QueueStreamReader\n"
        "reader = QueueStreamReader(Options({'url': sys.argv[1], 'queue': 'emails', 'consumer': 'billing'}))\n"
        "try:\n"
        "    print(reader.latestOffset(reader.initialOffset(), ReadMaxRows(5))['delivery'], flush=True)\n"
        "    sys.stdin.read()\n"
        "finally:\n"
        "    reader.stop()\n"
    )
    store.publish("emails", 1)
    command = [sys.executable, "-c", script, url]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as source:
        assert source.stdout is not None
        assert source.stdout.readline() == "1\n"
        source.terminate()
        assert source.wait(60) == 0
    with open_store(url) as arrow:
        head, _ = read_head(arrow, "default", "emails", "billing")
    assert head is not None
    assert (head.owner, head.last) == ("", 1)
    assert store.stats("emails").leased == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"consumer": ""}, "the option consumer is missing"),
        ({"queue": ""}, "the option queue is missing"),
        ({"maxOffsetsPerTrigger": 10_001}, "at most 10000"),
        ({"asyncProgressTrackingEnabled": "true"}, "asynchronous progress tracking"),
        ({"leaseSeconds": "soon"}, "leaseSeconds is 'soon'"),
    ],
)
def test_options_are_checked(options, message):
    from pyspark.sql.types import StructType

    from tampu.spark.source import TampuDataSource

    given = {"kind": "queue", "url": "jobs.db", "queue": "emails", "consumer": "billing", **options}
    source = TampuDataSource({name: str(value) for name, value in given.items()})
    with pytest.raises(tampu.InvalidConfig, match=message):
        source.streamReader(StructType())


def test_trigger_once_and_a_foreign_checkpoint_are_refused(store, url):
    store.publish("emails", 1)
    one, two = (reader(url, consumer=consumer) for consumer in ("a", "b"))
    began = one.initialOffset()
    assert one.initialOffset() == began
    with pytest.raises(tampu.InvalidState, match="availableNow"):
        one.latestOffset(began, ReadAllAvailable())
    with pytest.raises(tampu.InvalidState, match="the checkpoint does not belong to consumer b"):
        two.latestOffset(began, ReadMaxRows(5))
    assert store.stats("emails").ready == 1
    one.stop()
    two.stop()
