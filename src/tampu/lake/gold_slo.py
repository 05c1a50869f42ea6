"""gold.slo: how each queue's day stood against its objectives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from tampu.lake.objectives import ALL, Objective, effective

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def slo(messages: DataFrame, objectives: Sequence[Objective] = ()) -> DataFrame:
    """A row for each objective of each queue in which a message ended that day."""
    held = effective(objectives)
    limits = sorted({one.within for one in held if one.within is not None})
    done = F.col("state") == "done"
    ended = messages.groupBy("tenant", "day", "queue").agg(
        F.count(F.when(done, True)).alias("done"),
        F.count(F.when(F.col("state").isin("dead", "expired"), True)).alias("bad"),
        *(F.count(F.when(done & (F.col("total") <= limit), True)).alias(f"in_{i}") for i, limit in enumerate(limits)),
    )
    measured = F.explode(F.array(*(_measure(one, held, limits) for one in held))).alias("m")
    bad, budget = F.col("total") - F.col("good"), F.lit(1.0) - F.col("target")
    return (
        ended.select("tenant", "day", "queue", measured)
        .where("m.applies")
        .select("tenant", "day", "queue", "m.objective", "m.target", "m.within", "m.good", "m.total")
        .withColumn("ratio", F.when(F.col("total") > 0, F.col("good") / F.col("total")))
        .withColumn(
            "burn",
            # Where nothing may fail the budget is taken as one message, so that burn stays a number.
            F.when(F.col("ratio").isNotNull(), F.when(budget > 0, (1.0 - F.col("ratio")) / budget).otherwise(bad)),
        )
    )


def _measure(one: Objective, held: Sequence[Objective], limits: Sequence[float]) -> Column:
    if one.queue == ALL:
        own = sorted({other.queue for other in held if other.objective == one.objective and other.queue != ALL})
        applies = ~F.col("queue").isin(own) if own else F.lit(True)
    else:
        applies = F.col("queue") == one.queue
    if one.within is None:
        good, total = F.col("done"), F.col("done") + F.col("bad")
    else:
        good, total = F.col(f"in_{limits.index(one.within)}"), F.col("done")
    return F.struct(
        applies.alias("applies"),
        F.lit(one.objective).alias("objective"),
        F.lit(one.target).alias("target"),
        F.lit(one.within).cast("double").alias("within"),
        good.alias("good"),
        total.alias("total"),
    )
