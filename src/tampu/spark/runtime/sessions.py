"""Spark sessions with ``format("tampu")`` and suitable defaults."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from tampu.model.errors import Unavailable
from tampu.spark.runtime import java, python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_DEFAULTS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.python.filterPushdown.enabled": "true",
    # Renames files without file contexts: halves the minimum time of a micro-batch.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}
_LOCAL = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": str(2 * (os.cpu_count() or 1)),
    "spark.driver.memory": "2g",
    "spark.sql.codegen.cache.maxEntries": "2000",  # a run of the lake has more than the usual hundred
    "spark.python.daemon.module": "tampu.spark.runtime.daemon",
    # Java's usual collector favours short pauses, which nobody notices here, and costs a fifth more processor time.
    "spark.driver.extraJavaOptions": "-XX:+UseParallelGC",
}
# What Java's second compiler does would cost a short job more than it gains.
_SHORT = {"spark.driver.extraJavaOptions": "-XX:+UseParallelGC -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m"}


def session(
    master: str | None = None,
    *,
    remote: str | None = None,
    name: str = "tampu",
    config: Mapping[str, str] | None = None,
    short: bool = False,
) -> SparkSession:
    """A session on ``local[*]``, on a cluster (``master``) or through Spark Connect (``remote``, ``sc://…``).

    An active session is used as it is. ``config`` overrides the defaults. ``short`` is for a local session that ends
    after one job of up to some million rows: it starts faster, and would be slower in the long run.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise Unavailable("PySpark is not installed", hint="pip install 'tampu[spark]'") from None
    builder = SparkSession.builder.appName(name)
    settings = dict(_DEFAULTS)
    if remote is not None:
        builder = builder.remote(remote)
    else:
        master = master or os.environ.get("SPARK_MASTER") or "local[*]"
        java.provide()
        if master.startswith("local"):
            settings |= _LOCAL | (_SHORT if short else {})
            os.environ.setdefault("PYSPARK_PYTHON", python.provide())
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        builder = builder.master(master)
    for key, value in {**settings, **(config or {})}.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    if remote is None:
        spark.sparkContext.setLogLevel("ERROR")
    return register(spark)


def register(spark: SparkSession) -> SparkSession:
    """Add ``format("tampu")`` to a session of your own."""
    from tampu.spark.source import TampuDataSource

    spark.dataSource.register(TampuDataSource)
    return spark
