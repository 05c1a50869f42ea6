"""gold.failures: attempts that failed alike, by queue and day."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from tampu.lake.shaping import FAILS, among

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SAMPLES = 5


def failures(events: DataFrame, attempts: DataFrame) -> DataFrame:
    """One row per look of an error. Failures that gave none are told apart by how they ended: ``nack``, ``reap``.

    The journal says what failed, the deliveries say of which type the message was. Both meet at the message first, so
    that nothing is held in memory for all messages of a group but the few ids that are shown.
    """
    no_time, no_text = F.lit(None).cast("timestamp"), F.lit(None).cast("string")
    lost = F.col("verb") == "reap"
    failed = events.where(among(F.col("verb"), FAILS)).select(
        "tenant",
        "day",
        "queue",
        "id",
        F.when(lost, F.lit("reap")).otherwise(F.coalesce("fingerprint", "verb")).alias("fingerprint"),
        F.col("at"),
        F.struct("at", "partition", "offset", F.when(~lost, F.col("detail")).alias("error")).alias("seen"),
        F.lit(1).alias("one"),
        F.when(F.col("state") == "dead", 1).otherwise(0).alias("dead"),
        no_text.alias("type"),
    )
    typed = attempts.where(among(F.col("outcome"), FAILS)).select(
        "tenant",
        "day",
        "queue",
        "id",
        F.coalesce("fingerprint", "outcome").alias("fingerprint"),
        no_time.alias("at"),
        F.lit(None).cast(failed.schema["seen"].dataType).alias("seen"),
        F.lit(0).alias("one"),
        F.lit(0).alias("dead"),
        "type",
    )
    alike = ("tenant", "day", "queue", "fingerprint")
    return (
        failed.unionByName(typed)
        .groupBy(*alike, "id")
        .agg(
            F.sum("one").alias("attempts"),
            F.sum("dead").alias("dead"),
            F.min("at").alias("first_at"),
            F.max("seen").alias("seen"),
            F.collect_set("type").alias("types"),
        )
        .groupBy(*alike)
        .agg(
            F.sum("attempts").alias("attempts"),
            F.count("*").alias("messages"),
            F.sum("dead").alias("dead"),
            F.min("first_at").alias("first_at"),
            F.max("seen").alias("seen"),
            F.array_sort(F.array_distinct(F.flatten(F.collect_set("types")))).alias("types"),
            F.min_by("id", "id", SAMPLES).alias("sample_ids"),
        )
        .withColumns({"error": F.col("seen.error"), "last_at": F.col("seen.at")})
    )
