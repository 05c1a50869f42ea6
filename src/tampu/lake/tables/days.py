"""Gold by day: failures, tenants, workers, types of messages, objectives. Sums over facts; one function, one table.

What ended on a day is counted in `_facts.ends`, by files of silver.messages, since a replay takes an end back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tampu.lake.objectives import ALL, Objective, effective
from tampu.lake.tables.queues import ENDED, PERCENTILES, counted, seconds, sketched
from tampu.lake.tables.schema import columns, table
from tampu.lake.tables.words import FAILS, quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@table(
    "gold.failures",
    key=("tenant", "day", "queue", "fingerprint"),
    columns=columns("""
        text: queue
        text: fingerprint  -- of failures that gave no error, how they ended: nack, reject, reap
        text: error        -- of the latest
        count: attempts messages dead
        texts: types
        time: first_at last_at
        texts: sample_ids  -- the first five in the order of ids
    """),
)
def failures(spark: SparkSession, facts_failures: DataFrame) -> DataFrame:
    """Failures that look alike, day by day (last_at)."""
    return spark.sql(
        """
        WITH message AS (
          SELECT tenant, day, queue, look, id, sum(n) AS n, sum(died) AS died, min(first_at) AS first_at,
            max(struct(last_at, last_partition, last_offset, error)) AS latest, collect_set(type) AS types
          FROM {failures} GROUP BY tenant, day, queue, look, id
        )
        SELECT queue, look AS fingerprint, max(latest).error AS error, sum(n) AS attempts, count(*) AS messages,
          sum(died) AS dead, sort_array(array_distinct(flatten(collect_set(types)))) AS types,
          min(first_at) AS first_at, max(latest).last_at AS last_at, min_by(id, id, 5) AS sample_ids, day, tenant
        FROM message GROUP BY tenant, day, queue, look
        """,
        failures=facts_failures,
    )


@table(
    "gold.tenant_days",
    key=("tenant", "day"),
    columns=columns("""
        count: published deliveries done dead cancelled expired
        seconds: run_seconds
        count: payload_bytes result_bytes  -- of messages that ended that day
        count: queues
    """),
    ended=ENDED,
)
def tenant_days(
    spark: SparkSession, facts_counts: DataFrame, facts_deliveries: DataFrame, facts_ends: DataFrame
) -> DataFrame:
    """What each tenant used in a day."""
    return spark.sql(
        f"""
        WITH happened AS (
          SELECT tenant, day, {counted("published", "done", "dead", "cancelled", "expired")},
            size(collect_set(queue)) AS queues
          FROM {{counts}} GROUP BY tenant, day
        ), worked AS (
          SELECT tenant, day, sum(n) AS deliveries, sum(run_us) AS us FROM {{deliveries}} GROUP BY tenant, day
        ), ended AS (
          SELECT tenant, day, sum(payload_bytes) AS payload_bytes, sum(result_bytes) AS result_bytes
          FROM {{ends}} WHERE within IS NULL GROUP BY tenant, day
        )
        SELECT published, coalesce(deliveries, 0L) AS deliveries, done, dead, cancelled, expired,
          coalesce(us, 0L) / 1e6D AS run_seconds, coalesce(payload_bytes, 0L) AS payload_bytes,
          coalesce(result_bytes, 0L) AS result_bytes, cast(queues AS bigint) AS queues, day, tenant
        FROM happened LEFT JOIN worked USING (tenant, day) LEFT JOIN ended USING (tenant, day)
        """,
        counts=facts_counts,
        deliveries=facts_deliveries,
        ends=facts_ends,
    )


def _ended(**outcomes: str) -> str:
    return ", ".join(
        f"coalesce(sum(n) FILTER (WHERE outcome IN ({verbs})), 0L) AS {name}" for name, verbs in outcomes.items()
    )


@table(
    "gold.workers",
    key=("tenant", "day", "worker"),
    version=2,
    columns=columns("""
        text: worker
        count: deliveries done failed
        count: lost  -- leases that ran out
        count: released
        seconds: run_seconds run_p50 run_p95 run_p99
        time: first_at last_at
    """),
    expect={"failures are deliveries": "failed <= deliveries"},
)
def workers(spark: SparkSession, facts_deliveries: DataFrame) -> DataFrame:
    """What each worker that gave its name did in a day (ended_at of its deliveries)."""
    return spark.sql(
        f"""
        WITH own AS (
          SELECT tenant, day, worker, sum(n) AS deliveries,
            {_ended(done="'ack'", failed=FAILS, lost="'reap'", released="'release'")},
              sum(run_us) / 1e6D AS run_seconds,
            {sketched("run")}, min(first_at) AS first_at, max(last_at) AS last_at
          FROM {{deliveries}} WHERE worker IS NOT NULL GROUP BY tenant, day, worker
        )
        SELECT worker, deliveries, done, failed, lost, released, run_seconds, {seconds("run")}, first_at, last_at,
          day, tenant
        FROM own
        """,
        deliveries=facts_deliveries,
    )


@table(
    "gold.tasks",
    key=("tenant", "day", "queue", "type"),
    version=2,
    columns=columns(f"""
        text: queue type
        count: deliveries done failed
        count: dead  -- messages that died that day and have not been replayed since
        seconds: failure_ratio  -- failed / deliveries
        {PERCENTILES}
    """),
    expect={"failures are deliveries": "failed <= deliveries"},
)
def tasks(spark: SparkSession, facts_deliveries: DataFrame, facts_ends: DataFrame) -> DataFrame:
    """How each type of message fared in a day (ended_at of its deliveries)."""
    return spark.sql(
        f"""
        WITH worked AS (
          SELECT tenant, day, queue, type, sum(n) AS deliveries, {_ended(done="'ack'", failed=FAILS)},
            {sketched("wait", "run")}
          FROM {{deliveries}} GROUP BY tenant, day, queue, type
        ), died AS (
          SELECT tenant, day, queue, type, sum(n) AS dead
          FROM {{ends}} WHERE state = 'dead' AND within IS NULL GROUP BY tenant, day, queue, type
        )
        SELECT w.queue, w.type, deliveries, done, failed, coalesce(dead, 0L) AS dead,
          failed / deliveries AS failure_ratio,
          {seconds("wait", "run")}, w.day, w.tenant
        FROM worked w LEFT JOIN died d
          ON w.tenant = d.tenant AND w.day = d.day AND w.queue = d.queue AND w.type <=> d.type
        """,
        deliveries=facts_deliveries,
        ends=facts_ends,
    )


@table(
    "gold.slo",
    key=("tenant", "day", "queue", "objective"),
    columns=columns("""
        text: queue
        text: objective  -- success, or latency
        seconds: target  -- the share that must be good
        seconds: within  -- seconds from publish to done, for latency; null for success
        count: good total
        seconds: ratio
        seconds: burn    -- (1 - ratio) / (1 - target): above 1 the budget does not last
    """),
    expect={"what is good is part of all": "good <= total"},
)
def slo(spark: SparkSession, facts_ends: DataFrame, objectives: Sequence[Objective] = ()) -> DataFrame:
    """Objectives and how much of their budget a day burnt (ended_at).

    A row for each objective of each queue in which a message ended that day. A queue's own goes before the one for all.
    """
    held = effective(objectives)
    return spark.sql(
        f"""
        WITH measured AS (
          SELECT tenant, day, queue, inline(array({", ".join(_measured(one, held) for one in held)}))
          FROM {{ends}} WHERE n > 0 GROUP BY tenant, day, queue
        )
        SELECT queue, objective, target, within, good, total, try_divide(good, total) AS ratio,
          CASE WHEN total = 0 THEN NULL WHEN target < 1 THEN (1 - good / total) / (1 - target)
            ELSE cast(total - good AS double) END AS burn, day, tenant
        FROM measured WHERE applies
        """,
        ends=facts_ends,
    )


def _measured(one: Objective, held: Sequence[Objective]) -> str:
    own = [quoted(other.queue) for other in held if other.objective == one.objective and other.queue != ALL]
    applies = (
        f"queue = {quoted(one.queue)}" if one.queue != ALL else f"queue NOT IN ({', '.join(own)})" if own else "true"
    )
    within, total = "CAST(NULL AS double)", "'done', 'dead', 'expired'"
    if one.within is not None:
        within, total = f"{one.within!r}D", "'done'"

    good = _count(f"state = 'done' AND within <=> {within}")
    return (
        f"struct({quoted(one.objective)} AS objective, {one.target!r}D AS target, {within} AS within, {good} AS good,"
        f" {_count(f'state IN ({total}) AND within IS NULL')} AS total, {applies} AS applies)"
    )


def _count(condition: str) -> str:
    return f"coalesce(sum(n) FILTER (WHERE {condition}), 0L)"
