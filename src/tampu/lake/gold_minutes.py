"""gold.queue_minutes: what a queue did in a minute, and how much was ready at its end, since when.

Depth and age come from stays in ready. Spelling out every minute that every message waited would multiply a backlog
by the hours it stood; instead depth is a running sum of what came and left, and of all stays only those are spelt out
that were the oldest at some minute: at most one row per minute and queue, whatever the backlog.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from tampu.lake.shaping import (
    DAY_MINUTES,
    MINUTE,
    MOVES,
    among,
    counted,
    micros,
    minute_day,
    minute_of,
    minute_time,
    percentiles,
    seconds,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_KEY = ["tenant", "queue", "minute"]
_COUNTS = (
    "published",
    "claimed",
    "done",
    "failed",
    "dead",
    "cancelled",
    "expired",
    "released",
    "replayed",
)


def queue_minutes(
    days: Sequence[date],
    events: DataFrame,
    attempts: DataFrame,
    stays: DataFrame,
    carried: DataFrame,
    until: datetime,
) -> DataFrame:
    came = minute_of(F.col("at")).alias("minute")
    ended = minute_of(F.col("ended_at")).alias("minute")
    counts = events.groupBy("tenant", "queue", came).agg(*counted(*_COUNTS))
    durations = attempts.groupBy("tenant", "queue", ended).agg(*percentiles("wait", "run"))
    waiting = _waiting(days, _stays(stays, carried, until))
    # Put side by side by a union instead of joins: one shuffle, by queue, serves the sums and the walk over minutes.
    parts = counts.unionByName(durations, allowMissingColumns=True).unionByName(waiting, allowMissingColumns=True)
    numbers = [name for name in durations.columns if name not in _KEY]
    walk = Window.partitionBy("tenant", "queue").orderBy("minute").rowsBetween(Window.unboundedPreceding, 0)
    ends = F.col("done") + F.col("dead") + F.col("cancelled") + F.col("expired")
    return (
        parts.repartition("tenant", "queue")
        .groupBy(*_KEY)
        .agg(
            F.count("published").alias("happened"),
            *(F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in _COUNTS),
            *(F.max(name).alias(name) for name in numbers),
            F.sum("change").alias("change"),
            F.min("since").alias("since"),
        )
        .withColumn("depth", F.when(F.col("since").isNull(), 0).otherwise(F.sum("change").over(walk)))
        .where("happened > 0 OR since IS NOT NULL")
        .withColumns(
            {
                "in_rate": F.col("published") / F.lit(60.0),
                "out_rate": ends / F.lit(60.0),
                "oldest": seconds((F.col("minute") + 1) * MINUTE - F.col("since")),
                "day": minute_day(F.col("minute")),
            }
        )
        .where(F.col("day").isin(list(days)))
        .withColumn("minute", minute_time(F.col("minute")))
    )


def _stays(stays: DataFrame, carried: DataFrame, until: datetime) -> DataFrame:
    """Stays that lasted past the end of a minute: ready at the ends of the minutes ``first`` to ``out`` - 1.

    All that came and left in the same two minutes count as one, ready since the first of them came.
    """
    closed = stays.select(
        "tenant",
        "queue",
        micros(F.col("ready_at")).alias("since"),
        minute_of(F.col("ready_at")).alias("first"),
        minute_of(F.col("left_at")).alias("out"),
    )
    last = F.max(F.struct("offset", "state", "at", "queue")).alias("last")
    now = int(until.timestamp() // 60)
    still = (
        carried.where(among(F.col("verb"), MOVES))
        .groupBy("tenant", "id")
        .agg(last)
        .where(F.col("last.state") == "ready")
        .select(
            "tenant",
            "last.queue",
            micros(F.col("last.at")).alias("since"),
            minute_of(F.col("last.at")).alias("first"),
            F.lit(now + 1).cast("bigint").alias("out"),
        )
    )
    return (
        closed.unionByName(still)
        .where("first < out")
        .groupBy("tenant", "queue", "first", "out")
        .agg(F.count("*").alias("n"), F.min("since").alias("since"))
    )


def _waiting(days: Sequence[date], stays: DataFrame) -> DataFrame:
    """(tenant, queue, minute, change, since): how depth changes, and since when the oldest was ready at a minute's end.

    A stay is never the oldest while an older one lasts at least as long. The others follow one another: each is the
    oldest from when the one before it left (or it came itself) until it leaves.
    """
    order = Window.partitionBy("tenant", "queue").orderBy("since", F.col("out").desc())
    older = F.coalesce(F.max("out").over(order.rowsBetween(Window.unboundedPreceding, -1)), F.lit(0))
    begin = F.greatest(F.col("first"), F.col("older"), F.lit(_first_minute(days[0])))
    end = F.least(F.col("out") - 1, F.lit(_first_minute(days[-1]) + DAY_MINUTES - 1))
    spelt = F.transform(
        F.when(begin <= end, F.sequence(begin, end)).otherwise(F.array().cast("array<bigint>")),
        lambda minute: F.struct(minute.alias("minute"), F.lit(0).cast("bigint").alias("change"), F.col("since")),
    )
    never = F.lit(None).cast("bigint").alias("since")
    changes = F.array(
        F.struct(F.col("first").alias("minute"), F.col("n").alias("change"), never),
        F.struct(F.col("out").alias("minute"), (-F.col("n")).alias("change"), never),
    )
    return stays.withColumn("older", older).select("tenant", "queue", F.inline(F.concat(changes, spelt)))


def _first_minute(day: date) -> int:
    return (day - date(1970, 1, 1)).days * DAY_MINUTES
