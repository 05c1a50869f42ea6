"""What befalls tasks on a real cluster, and what came of it: copies of slow tasks, kill -9 of executors and workers.

``format("faulty")`` is ``tampu`` with one accident, on the first attempt of one partition, when some of its rows are
through. What happened is left as files in a folder that all processes share.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tampu.spark.options import Options
from tampu.spark.queue.stream import QueueStreamReader
from tampu.spark.read import MessagesReader
from tampu.spark.source import TampuDataSource
from tampu.spark.write.writer import BatchWriter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CONFIG = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.minTaskRuntime": "100ms",
    "spark.speculation.quantile": "0.5",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10",
}
WRITES = {
    "copied": {"accident": "slow"},
    "copied-direct": {"accident": "slow", "onCommit": "false"},
    "worker-direct": {"accident": "worker", "onCommit": "false"},
    "executor": {"accident": "executor"},
}
"""By queue: the options of a write of `ROWS` rows."""
ROWS = 60


def faulty_source(folder: str) -> type[TampuDataSource]:
    """A local class, so that it travels by value: executors do not have this file."""
    import os
    import signal
    import time

    from pyspark import TaskContext

    class Accident:
        def __init__(self, options: Options, name: str) -> None:
            self.kind = options.text("accident", "")
            self.name = name

        def through(self, batches: Any, partition: int) -> Any:
            """The batches; after the first of them, what happens."""
            context = TaskContext.get()
            assert context is not None
            attempt = context.attemptNumber()
            self.note(f"attempt-{context.partitionId()}-{attempt}")
            mine = False
            for number, batch in enumerate(batches):
                yield batch
                if number == 0 and context.partitionId() == partition and self.first():
                    mine = True
                    self.happen()
            if context.partitionId() == partition and not mine:
                self.note("finished")

        def note(self, what: str) -> None:
            Path(folder, f"{self.name}.{what}").touch()

        def first(self) -> bool:
            """Not before: of all attempts of the task, one has the accident."""
            try:
                os.close(os.open(Path(folder, f"{self.name}.happened"), os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                return False
            return True

        def happen(self) -> None:
            if self.kind == "worker":
                os.kill(os.getpid(), signal.SIGKILL)
            if self.kind == "executor":
                os.kill(executor(), signal.SIGKILL)
            deadline = time.monotonic() + 120
            while not Path(folder, f"{self.name}.finished").exists():  # the copy is through, so this one comes too late
                if time.monotonic() > deadline:
                    raise RuntimeError("no copy of this task was made")
                time.sleep(0.02)  # noqa: TID251 - another process is waited for

    def executor() -> int:
        """The JVM above this process: the worker is a child of a daemon, which is a child of it."""
        daemon = Path(f"/proc/{os.getppid()}/stat").read_text()
        found = int(daemon.rpartition(")")[2].split()[1])
        assert b"ExecutorBackend" in Path(f"/proc/{found}/cmdline").read_bytes()
        return found

    def halves(batches: Any) -> Any:
        for batch in batches:
            yield batch.slice(0, len(batch) // 2)
            yield batch.slice(len(batch) // 2)

    class Writer(BatchWriter):
        def __init__(self, options: Options, schema: Any) -> None:
            super().__init__(options, schema)
            self.accident = Accident(options, f"write-{self.queue}")

        def write(self, iterator: Any) -> Any:
            return super().write(self.accident.through(iterator, 1))

    class Reader(MessagesReader):
        def __init__(self, options: Options) -> None:
            super().__init__(options)
            self.accident = Accident(options, "read")

        def read(self, partition: Any) -> Any:
            return self.accident.through(halves(super().read(partition)), 0)

    class Drain(QueueStreamReader):
        def __init__(self, options: Options) -> None:
            super().__init__(options)
            self.accident = Accident(options, "drain")

        def read(self, partition: Any) -> Any:
            return self.accident.through(halves(super().read(partition)), 1)

    class Source(TampuDataSource):
        @classmethod
        def name(cls) -> str:
            return "faulty"

        def writer(self, schema: Any, overwrite: bool) -> Any:
            return Writer(Options(self.options), schema)

        def reader(self, schema: Any) -> Any:
            return Reader(Options(self.options))

        def streamReader(self, schema: Any) -> Any:
            return Drain(Options(self.options))

    return Source


def happen(spark: SparkSession, url: str, folder: Path) -> dict[str, Any]:
    """Every accident once; what Spark saw: the payloads that were read, and those of each batch that was drained."""
    folder.mkdir()
    spark.dataSource.register(faulty_source(str(folder)))
    rows = spark.range(0, ROWS, 1, 2).selectExpr("cast(id AS string) AS payload")
    for queue, options in WRITES.items():
        rows.write.format("faulty").mode("append").options(url=url, queue=queue, **options).save()
    drained: dict[int, list[int]] = {}

    def work(batch: DataFrame, number: int) -> None:
        found = batch.selectExpr("cast(payload AS string) AS text").collect()
        drained[number] = sorted(int(row.text) for row in found)

    stream = spark.readStream.format("faulty").options(
        url=url, kind="queue", queue="copied", consumer="billing", minPartitions="2", accident="worker"
    )
    query = stream.load().writeStream.foreachBatch(work).option("checkpointLocation", str(folder / "checkpoint"))
    query.trigger(availableNow=True).start().awaitTermination(120)
    read = spark.read.format("faulty").options(url=url, queue="copied", accident="executor").load()
    seen = sorted(int(row.text) for row in read.selectExpr("cast(payload AS string) AS text").collect())
    return {"read": seen, "drained": [drained[number] for number in sorted(drained) if drained[number]]}


def evidence(folder: Path) -> dict[str, set[str]]:
    """What was noted, by accident."""
    found: dict[str, set[str]] = {}
    for path in folder.iterdir():
        name, dot, what = path.name.partition(".")
        if dot:
            found.setdefault(name, set()).add(what)
    return found
