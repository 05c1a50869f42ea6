"""One row through everything that Spark does with a store."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import tampu
from tampu.lake.run import Pipeline
from tampu.lake.storage import Lake
from tests.spark.writer_driver import staged

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def test_one_message_is_written_read_drained_and_kept_in_the_lake(
    spark: SparkSession, url: str, store: tampu.Store, tmp_path: Path
) -> None:
    row = spark.range(1).selectExpr("'only' AS payload", "'single' AS type")
    row.write.format("tampu").mode("append").options(url=url, queue="emails", jobId="one").save()
    assert staged(url) == []

    def load(**options: Any) -> list[Any]:
        return spark.read.format("tampu").options(url=url, **options).load().collect()

    (message,) = load(queue="emails", includePosition="true")
    (event,) = load(kind="journal")
    assert (bytes(message.payload), message.type, message.state) == (b"only", "single", "ready")
    assert (event.id, event.verb, event.offset) == (message.id, "publish", 1)

    def run(kind: str, **options: Any) -> list[list[Any]]:
        """The batches that had something."""
        came: list[list[Any]] = []

        def work(batch: DataFrame, number: int) -> None:
            came.append(batch.collect())

        stream = spark.readStream.format("tampu").options(url=url, kind=kind, **options).load().writeStream
        query = stream.foreachBatch(work).option("checkpointLocation", str(tmp_path / kind))
        assert query.trigger(availableNow=True).start().awaitTermination(300)
        return [rows for rows in came if rows]

    assert [[e.id for e in rows] for rows in run("journal", startingOffsets="earliest")] == [[message.id]]
    ((delivery,),) = run("queue", queue="emails", consumer="billing")
    assert (delivery.id, delivery.delivery, bytes(delivery.payload)) == (message.id, 1, b"only")
    assert [m.id for m in store.messages("emails", state="done")] == [message.id]

    lake = Lake(str(tmp_path / "lake"))
    Pipeline(url, lake).run(lambda: spark)

    def table(name: str) -> list[dict[str, Any]]:
        return list(lake.table(name).open().arrow().to_table().to_pylist())

    assert sorted((e["offset"], e["verb"]) for e in table("bronze.events")) == [
        (1, "publish"),
        (2, "claim"),
        (3, "ack"),
    ]
    assert [(m["id"], m["state"]) for m in table("silver.messages")] == [(message.id, "done")]
    assert [(a["id"], a["attempt"]) for a in table("silver.attempts")] == [(message.id, 1)]
