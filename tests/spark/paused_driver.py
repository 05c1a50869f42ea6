"""A driver that stops in the middle of all it does, until another one has been at the same checkpoints and lake.

It drains a queue, copies the journal into another store, under a job id for each batch, and keeps a lake. The other
one uses the same functions and does not wait.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tampu.spark
from tampu.lake.run import Pipeline
from tampu.lake.storage import Lake

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

MESSAGES = 50
PATIENCE = 600
Wait = Callable[[str], None]


def start_drain(spark: SparkSession, url: str, home: Path, wait: Wait | None = None, **options: Any) -> StreamingQuery:
    """Twenty messages at a time; who has waited says afterwards that all of them failed."""
    given = {"url": url, "kind": "queue", "queue": "emails", "consumer": "billing"}
    source = spark.readStream.format("tampu").options(**given, leaseSeconds=3600, maxOffsetsPerTrigger=20)
    frame = source.options(**options).load()

    def work(batch: DataFrame, number: int) -> None:
        rows = sorted((row.delivery, row.id) for row in batch.select("delivery", "id").collect())
        with (home / "drained.jsonl").open("a") as file:
            print(json.dumps([number, rows]), file=file)
        if wait is not None:
            wait("drain")
            tampu.spark.settle(batch.selectExpr("receipt", "delivery", "'too late' AS error"))

    return _started(frame, work, home / "drain-checkpoint")


def start_copy(spark: SparkSession, url: str, home: Path, wait: Wait | None = None) -> StreamingQuery:
    given = {"url": url, "kind": "journal", "startingOffsets": "earliest"}
    frame = spark.readStream.format("tampu").options(**given, maxOffsetsPerTrigger=30).load()

    def work(batch: DataFrame, number: int) -> None:
        if wait is not None:
            wait("copy")
        rows = batch.selectExpr("struct(offset, id, verb) AS payload")
        job = {"url": str(home / "copy.db"), "queue": "events", "jobId": f"copy/{number}"}
        rows.write.format("tampu").mode("append").options(**job).save()

    return _started(frame, work, home / "copy-checkpoint")


def _started(frame: DataFrame, work: Callable[[DataFrame, int], None], checkpoint: Path) -> StreamingQuery:
    writer = frame.writeStream.foreachBatch(work).option("checkpointLocation", str(checkpoint))
    return writer.trigger(availableNow=True).start()


def keep_lake(spark: SparkSession, url: str, home: Path, wait: Wait | None = None) -> None:
    def at(step: str) -> None:
        if wait is not None and step == "written":
            wait("lake")

    Pipeline(url, Lake(str(home / "lake")), on_step=at).run(lambda: spark)


def meet(spark: SparkSession, url: str, home: Path) -> dict[str, str]:
    """How each of the three ended here."""
    with tampu.open(url, maintenance=False) as store:
        store.publish_many("emails", range(MESSAGES))

    def wait(what: str) -> None:
        (home / f"{what}.waits").touch()
        until((home / "go").exists, "the other driver")

    queries = {"drain": start_drain(spark, url, home, wait), "copy": start_copy(spark, url, home, wait)}
    ended = {"lake": _end(lambda: keep_lake(spark, url, home, wait))}
    for name, query in queries.items():
        ended[name] = _end(lambda query=query: query.awaitTermination(PATIENCE))  # type: ignore[misc]  # a loop's
    return ended


def _end(work: Callable[[], object]) -> str:
    try:
        work()
    except Exception as error:  # whatever it is, the test looks at it
        return f"{type(error).__name__}: {error}"
    return "done"


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waiting for {what}")
        time.sleep(0.05)  # noqa: TID251 - another process is waited for
