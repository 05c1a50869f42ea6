"""Gold by queue: minutes, and hours and days as their roll-ups. Sums over facts; one function, one table."""

from __future__ import annotations

from collections.abc import Collection
from datetime import date, datetime
from typing import TYPE_CHECKING

from tampu.lake.tables.facts import K
from tampu.lake.tables.schema import columns, table
from tampu.lake.tables.words import FAILS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COUNTS = {
    "published": "verb = 'publish'",
    "claimed": "verb = 'claim'",
    "done": "state = 'done'",
    "failed": f"verb IN ({FAILS})",
    "dead": "state = 'dead'",
    "cancelled": "state = 'cancelled'",
    "expired": "state = 'expired'",
    "released": "verb = 'release'",
    "replayed": "verb = 'replay'",
}
PERCENTILES = """seconds: wait_p50 wait_p95 wait_p99  -- of deliveries that ended then; the error is in `facts`
        seconds: run_p50 run_p95 run_p99"""
ENDED = "done + dead + cancelled + expired"
_DEPTH = {"depth is not negative": "depth >= 0"}
_DAY_MINUTES = 1440


def counted(*names: str) -> str:
    """Sums of the facts that are counts."""
    return ", ".join(f"coalesce(sum(n) FILTER (WHERE {COUNTS[name]}), 0L) AS {name}" for name in names)


def sketched(*names: str) -> str:
    """Three percentiles of sketches, as one column of microseconds each."""
    return ", ".join(
        f"if(count({name}) > 0, kll_sketch_get_quantile_bigint(kll_merge_agg_bigint({name}, {K}),"
        f" array(0.5D, 0.95D, 0.99D)), NULL) AS {name}_q"
        for name in names
    )


def seconds(*names: str) -> str:
    """Those, as columns of seconds."""
    return ", ".join(f"{name}_q[{i}] / 1e6D AS {name}_p{p}" for name in names for i, p in enumerate((50, 95, 99)))


def first_minute(day: date) -> int:
    """The number of a day's first minute since 1970."""
    return (day - date(1970, 1, 1)).days * _DAY_MINUTES


@table(
    "gold.queue_minutes",
    key=("tenant", "queue", "minute"),
    version=2,
    columns=columns(f"""
        text: queue
        time: minute
        count: published claimed done
        count: failed  -- attempts that ended by nack, reject or a lease that ran out
        count: dead cancelled expired released replayed
        seconds: in_rate   -- published per second
        seconds: out_rate  -- ended per second
        {PERCENTILES}
        count: depth     -- ready at the end of the minute
        seconds: oldest  -- how long the oldest of them had been ready then; null when none was
    """),
    expect=_DEPTH,
    ended=ENDED,
)
def queue_minutes(
    spark: SparkSession,
    facts_counts: DataFrame,
    facts_deliveries: DataFrame,
    facts_stays: DataFrame,
    facts_waiting: DataFrame,
    days: Collection[date],
    until: datetime,
) -> DataFrame:
    """What each queue did, minute by minute (minute).

    ``until`` is the time of the newest event: what waits then is ready in every minute up to it. Depth is the running
    sum of what came and left. A stay is never the oldest while an older one lasts at least as long; the others follow
    one another: each is the oldest from when the one before it left until it leaves.
    """
    begin, end, now = first_minute(min(days)), first_minute(max(days)) + _DAY_MINUTES - 1, int(until.timestamp() // 60)
    wanted = ", ".join(f"DATE'{day}'" for day in sorted(days))
    key = "tenant, queue, minute"
    happened = spark.sql(
        f"SELECT {key}, {counted(*COUNTS)}, true AS happened FROM {{c}} GROUP BY {key}", c=facts_counts
    )
    took = spark.sql(f"SELECT {key}, {sketched('wait', 'run')} FROM {{d}} GROUP BY {key}", d=facts_deliveries)
    ready = spark.sql(
        f"""
        WITH stay AS (
          SELECT tenant, queue, came, gone, n, unix_micros(since) AS since FROM {{stays}}
          UNION ALL SELECT tenant, queue, came, {now + 1}L, n, unix_micros(since) FROM {{waiting}} WHERE came <= {now}
        ), ranked AS (
          SELECT *, least(gone - 1, {end}) AS stop,
            greatest(came, {begin}, max(gone) OVER (PARTITION BY tenant, queue ORDER BY since, gone DESC
              ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)) AS start
          FROM stay WHERE gone > {begin} AND came <= {end}
        )
        SELECT tenant, queue, greatest(came, {begin}) AS minute, n AS change, NULL AS since FROM ranked
        UNION ALL SELECT tenant, queue, gone, -n, NULL FROM ranked
        UNION ALL SELECT tenant, queue, explode(sequence(start, stop)), 0, since FROM ranked WHERE start <= stop
        """,
        stays=facts_stays,
        waiting=facts_waiting,
    )
    parts = happened.unionByName(took, allowMissingColumns=True).unionByName(ready, allowMissingColumns=True)
    return spark.sql(
        f"""
        WITH summed AS (
          SELECT {key}, {", ".join(f"coalesce(max({name}), 0L) AS {name}" for name in COUNTS)},
            max(happened) AS happened, any_value(wait_q, true) AS wait_q, any_value(run_q, true) AS run_q,
            coalesce(sum(change), 0L) AS change, min(since) AS since
          FROM {{parts}} GROUP BY {key}
        ), stood AS (
          SELECT *, sum(change) OVER (PARTITION BY tenant, queue ORDER BY minute) AS depth,
            date_from_unix_date(cast(minute div {_DAY_MINUTES} AS int)) AS day
          FROM summed
        )
        SELECT queue, timestamp_seconds(minute * 60) AS minute, {", ".join(COUNTS)}, published / 60D AS in_rate,
          (done + dead + cancelled + expired) / 60D AS out_rate, {seconds("wait", "run")}, depth,
          ((minute + 1) * 60000000 - since) / 1e6D AS oldest, day, tenant
        FROM stood WHERE (happened OR since IS NOT NULL) AND day IN ({wanted})
        """,
        parts=parts,
    )


_ROLLED = f"""
        count: published claimed done failed dead cancelled expired released replayed
        {PERCENTILES}
        count: depth       -- ready at the end
        count: most_ready  -- the greatest depth of its minutes
        seconds: oldest    -- the greatest of its minutes
    """


@table(
    "gold.queue_hours",
    key=("tenant", "queue", "hour"),
    columns=columns(f"""
        text: queue
        time: hour
        {_ROLLED}
    """),
    expect=_DEPTH,
    ended=ENDED,
)
def queue_hours(spark: SparkSession, gold_queue_minutes: DataFrame, facts_deliveries: DataFrame) -> DataFrame:
    """What each queue did, hour by hour (hour)."""
    minutes, deliveries = gold_queue_minutes, facts_deliveries
    return _rolled_up(spark, minutes, deliveries, "hour, ", "date_trunc('hour', minute)", "minute div 60 * 3600")


@table(
    "gold.queue_days",
    key=("tenant", "day", "queue"),
    columns=columns(f"""
        text: queue
        {_ROLLED}
    """),
    expect=_DEPTH,
    ended=ENDED,
)
def queue_days(spark: SparkSession, gold_queue_minutes: DataFrame, facts_deliveries: DataFrame) -> DataFrame:
    """What each queue did in a day."""
    minutes, deliveries = gold_queue_minutes, facts_deliveries
    return _rolled_up(spark, minutes, deliveries, "", "cast(day AS timestamp)", "minute div 1440 * 86400")


def _rolled_up(
    spark: SparkSession, minutes: DataFrame, deliveries: DataFrame, shown: str, of_minute: str, of_delivery: str
) -> DataFrame:
    """Sums over gold.queue_minutes; percentiles by merging the sketches."""
    key = "tenant, queue, day, hour"
    return spark.sql(
        f"""
        WITH parts AS (
          SELECT tenant, queue, day, {of_minute} AS hour, minute, {", ".join(COUNTS)}, depth, oldest,
            CAST(NULL AS binary) AS wait, CAST(NULL AS binary) AS run
          FROM {{minutes}}
          UNION ALL
          SELECT tenant, queue, day, timestamp_seconds({of_delivery}), NULL, {", ".join("NULL" for _ in COUNTS)},
            NULL, NULL,
            wait, run
          FROM {{deliveries}}
        ), summed AS (
          SELECT {key}, {", ".join(f"sum({name}) AS {name}" for name in COUNTS)}, {sketched("wait", "run")},
            max_by(depth, minute) AS depth, max(depth) AS most_ready, max(oldest) AS oldest
          FROM parts GROUP BY {key}
        )
        SELECT queue, {shown}{", ".join(COUNTS)}, {seconds("wait", "run")}, depth, most_ready, oldest, day,
          tenant FROM summed
        """,
        minutes=minutes,
        deliveries=deliveries,
    )
