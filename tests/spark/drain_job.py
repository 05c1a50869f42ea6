"""A driver that drains the queue ``emails`` into a file per batch, and is killed at a chosen point.

python -m tests.spark.drain_job URL HOME POINT, in a process group of its own. The points: ``sink`` (the batch is
written, Spark has not committed it), ``commit`` (Spark has committed it, nothing is settled), ``lease`` (the next batch
is leased, Spark has not heard of it). ``raise`` only fails where ``sink`` kills.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tampu.spark
from tampu.spark.options import Options
from tampu.spark.queue.stream import QueueStreamReader
from tampu.spark.source import TampuDataSource
from tests.spark import quick_java

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


def killing_source(whole_group: bool) -> type[TampuDataSource]:
    """``format("killing")``: as ``tampu``, but dies in latestOffset. A local class, so that it travels by value."""

    class Reader(QueueStreamReader):
        def __init__(self, options: Options) -> None:
            super().__init__(options)
            self.point = options.text("point", "")

        def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:
            if self.point == "commit" and start["delivery"] > 0:
                self.die()
            end = super().latestOffset(start, limit)
            if self.point == "lease" and end["delivery"] > start["delivery"]:
                self.die()
            return end

        def die(self) -> None:
            if whole_group:
                os.killpg(os.getpgrp(), signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)

    class Source(TampuDataSource):
        @classmethod
        def name(cls) -> str:
            return "killing"

        def streamReader(self, schema: Any) -> Any:
            return Reader(Options(self.options))

    return Source


def drain(spark: SparkSession, url: str, home: Path, point: str, form: str = "killing") -> StreamingQuery:
    home.mkdir(exist_ok=True)
    options = {"kind": "queue", "url": url, "queue": "emails", "consumer": "billing", "point": point}
    frame = spark.readStream.format(form).options(**options).option("maxOffsetsPerTrigger", 20).load()

    def work(batch: DataFrame, number: int) -> None:
        rows = sorted((row.delivery, row.id) for row in batch.select("delivery", "id").collect())
        written = home / f"batch-{number}.json"
        with written.with_suffix(".new").open("w") as file:
            json.dump(rows, file)
            file.flush()
            os.fsync(file.fileno())
        written.with_suffix(".new").replace(written)
        with (home / "all.jsonl").open("a") as file:
            print(json.dumps([number, rows]), file=file, flush=True)
        if point == "raise":
            raise RuntimeError("the sink fails when it has written")
        if point == "sink" and rows:
            os.killpg(os.getpgrp(), signal.SIGKILL)

    writer = frame.writeStream.foreachBatch(work).option("checkpointLocation", str(home / "checkpoint"))
    return writer.trigger(availableNow=True).start()


def main() -> None:
    url, home, point = sys.argv[1:]
    config = {
        "spark.driver.extraJavaOptions": quick_java.options(),
        "spark.driver.memory": "1g",
        "spark.sql.warehouse.dir": f"{home}/warehouse",
    }
    spark = tampu.spark.session("local[2]", config=config)
    spark.dataSource.register(killing_source(True))
    drain(spark, url, Path(home), point).awaitTermination(300)
    spark.stop()


if __name__ == "__main__":
    main()
