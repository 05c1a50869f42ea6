"""gold.tenant_days, gold.workers and gold.tasks: a day in one row, by tenant, by worker, by type of message."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from tampu.lake.shaping import FAILS, among, counted, micros, percentiles, seconds

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_USED = ("published", "done", "dead", "cancelled", "expired")


def _outcomes(*outcomes: str) -> Column:
    return F.count(F.when(among(F.col("outcome"), outcomes), True))


def _ran() -> Column:
    """Seconds of work; whole microseconds are added up, so the order does not matter."""
    return seconds(F.sum(micros(F.col("ended_at")) - micros(F.col("claimed_at"))))


def tenant_days(events: DataFrame, attempts: DataFrame, messages: DataFrame) -> DataFrame:
    """Of tenants that had a transition that day."""
    moved = events.groupBy("tenant", "day", "queue").agg(*counted(*_USED))
    worked = attempts.groupBy("tenant", "day").agg(F.count("*").alias("deliveries"), _ran().alias("run_seconds"))
    held = messages.groupBy("tenant", "day").agg(
        F.sum("payload_bytes").alias("payload_bytes"), F.sum("result_bytes").alias("result_bytes")
    )
    parts = moved.unionByName(worked, allowMissingColumns=True).unionByName(held, allowMissingColumns=True)
    sums = (*_USED, "deliveries", "run_seconds", "payload_bytes", "result_bytes")
    return (
        parts.groupBy("tenant", "day")
        .agg(*(F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in sums), F.count("queue").alias("queues"))
        .where("queues > 0")
    )


def workers(attempts: DataFrame) -> DataFrame:
    """Of workers that gave their name."""
    return (
        attempts.where("worker IS NOT NULL")
        .groupBy("tenant", "day", "worker")
        .agg(
            F.count("*").alias("deliveries"),
            _outcomes("ack").alias("done"),
            _outcomes(*FAILS).alias("failed"),
            _outcomes("reap").alias("lost"),
            _outcomes("release").alias("released"),
            _ran().alias("run_seconds"),
            *percentiles("run"),
            F.min("claimed_at").alias("first_at"),
            F.max("ended_at").alias("last_at"),
        )
    )


def tasks(attempts: DataFrame, messages: DataFrame) -> DataFrame:
    """Deliveries by type; ``dead`` are messages that died that day and have not been replayed since."""
    key = ("tenant", "day", "queue", "type")
    died = messages.where("state = 'dead'").select(*key, F.lit(1).alias("died"))
    parts = attempts.select(*key, "outcome", "wait", "run").unionByName(died, allowMissingColumns=True)
    return (
        parts.groupBy(*key)
        .agg(
            F.count("outcome").alias("deliveries"),
            _outcomes("ack").alias("done"),
            _outcomes(*FAILS).alias("failed"),
            F.count("died").alias("dead"),
            *percentiles("wait", "run"),
        )
        .where("deliveries > 0")
        .withColumn("failure_ratio", F.col("failed") / F.col("deliveries"))
    )
