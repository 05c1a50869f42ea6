"""Facts: what gold adds up, by minute. Each run adds those of its own events, once; gold of any time is a sum over
them.

Waits and runs are kept as KLL sketches, which can be merged: a percentile of a minute, a day or a month is exact while
there are up to about `K` deliveries in it, and within 0.3 % of the rank beyond. It is always a value that occurred.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tampu.lake.objectives import ALL, Objective, effective
from tampu.lake.tables.schema import columns, table
from tampu.lake.tables.silver import _chosen, _type
from tampu.lake.tables.words import FAILS, KNOWN, quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

K = 1000


@table(
    "_facts.counts",
    key=("tenant", "queue", "minute", "verb", "state"),
    columns=columns("""
        text: queue
        count: minute
        text: verb
        text: state  -- null for adoptions: what had ended, ended elsewhere
        count: n
    """),
)
def counts(spark: SparkSession, events: DataFrame) -> DataFrame:
    """Transitions by minute (minutes since 1970), verb and state."""
    return spark.sql(
        f"""
        SELECT queue, unix_seconds(at) div 60 AS minute, verb, if(verb = 'adopt', NULL, state) AS state, count(*) AS n,
          day, tenant
        FROM {{events}} WHERE verb IN ({KNOWN}) GROUP BY ALL
        """,
        events=events,
    )


@table(
    "_facts.deliveries",
    key=("tenant", "queue", "minute", "type", "worker", "outcome"),
    columns=columns("""
        text: queue
        count: minute
        text: type worker outcome
        count: n run_us
        time: first_at last_at
        bytes: wait run
    """),
)
def deliveries(spark: SparkSession, attempts: DataFrame) -> DataFrame:
    """Deliveries by minute of their end, with sketches of how many microseconds they waited and ran."""
    return spark.sql(
        f"""
        WITH delivery AS (
          SELECT *, cast(round(wait * 1e6D) AS bigint) AS wait_us,
            cast(round(run * 1e6D) AS bigint) AS us FROM {{attempts}}
        )
        SELECT queue, unix_seconds(ended_at) div 60 AS minute, type, worker, outcome, count(*) AS n, sum(us) AS run_us,
          min(claimed_at) AS first_at, max(ended_at) AS last_at,
          if(count(wait_us) > 0, kll_sketch_agg_bigint(wait_us, {K}), NULL) AS wait,
          kll_sketch_agg_bigint(us, {K}) AS run, day, tenant
        FROM delivery GROUP BY ALL
        """,
        attempts=attempts,
    )


@table(
    "_facts.failures",
    key=("tenant", "queue", "minute", "look", "id"),
    columns=columns("""
        text: queue
        count: minute
        text: look id type
        count: n died
        time: first_at last_at
        text: last_partition
        count: last_offset
        text: error
    """),
)
def failures(spark: SparkSession, histories: DataFrame) -> DataFrame:
    """Attempts that failed, by minute, message and what they look like (the fingerprint, or how they ended).

    Of a failure that ended no delivery (the claim was trimmed) the type is not known.
    """
    return spark.sql(
        f"""
        WITH failed AS (
          SELECT *, explode(filter(sequence(0, size(m) - 1), i -> m[i].new AND m[i].verb IN ({FAILS}))) AS i
          FROM {{histories}} WHERE size(m) > 0
        ), event AS (
          SELECT tenant, id, m[i] AS e, if(get(m, i - 1).verb = 'claim', {_type("m[i]")}, NULL) AS type FROM failed
        ), told AS (
          SELECT tenant, id, e.queue, e.at, e.state, type, if(e.verb = 'reap', 'reap', coalesce(e.fingerprint,
            e.verb)) AS look,
            struct(e.at, e.partition, e.offset, if(e.verb = 'reap', NULL, e.detail) AS error) AS latest
          FROM event
        ), summed AS (
          SELECT queue, unix_seconds(at) div 60 AS minute, look, id, type, count(*) AS n,
            count_if(state = 'dead') AS died,
            min(at) AS first_at, max(latest) AS l, to_date(at) AS day, tenant
          FROM told GROUP BY ALL
        )
        SELECT queue, minute, look, id, type, n, died, first_at, l.at AS last_at, l.partition AS last_partition,
          l.offset AS last_offset, l.error, day, tenant FROM summed
        """,
        histories=histories,
    )


@table(
    "_facts.stays",
    key=("tenant", "queue", "came", "gone"),
    columns=columns("""
        text: queue
        count: came gone n
        time: since  -- when the oldest of them came
    """),
)
def stays(spark: SparkSession, histories: DataFrame) -> DataFrame:
    """Stays in ready over the end of a minute, by the minutes in which they began and ended."""
    return spark.sql(
        f"""
        WITH left AS ({_chosen("m[i].verb <> 'publish' AND m[i - 1].state = 'ready'")}),
        stay AS (SELECT tenant, m[i].queue AS queue, m[i - 1].at AS since, m[i].at AS until FROM left)
        SELECT queue, unix_seconds(since) div 60 AS came, unix_seconds(until) div 60 AS gone, count(*) AS n,
          min(since) AS since, to_date(until) AS day, tenant
        FROM stay WHERE unix_seconds(since) div 60 < unix_seconds(until) div 60 GROUP BY ALL
        """,
        histories=histories,
    )


@table(
    "_facts.waiting",
    key=("tenant", "queue", "came"),
    columns=columns("""
        text: queue
        count: came n
        time: since
    """),
)
def waiting(spark: SparkSession, histories: DataFrame) -> DataFrame:
    """Stays in ready that go on; every run tells all of them, so the day is always the first of 1970."""
    return spark.sql(
        """
        SELECT last.queue, unix_seconds(last.at) div 60 AS came, count(*) AS n, min(last.at) AS since,
          DATE'1970-01-01' AS day, tenant
        FROM (SELECT tenant, try_element_at(m, -1) AS last FROM {histories}) WHERE last.state = 'ready' GROUP BY ALL
        """,
        histories=histories,
    )


@table(
    "_facts.ends",
    key=("tenant", "day", "file", "queue", "type", "state", "within"),
    columns=columns("""
        text: file limits
        text: queue type state
        seconds: within  -- null: all of them; else those that were done within so many seconds
        count: n payload_bytes result_bytes
    """),
)
def ends(
    spark: SparkSession, silver_messages: DataFrame, known: DataFrame, objectives: Sequence[Objective] = ()
) -> DataFrame:
    """Messages that ended, by the file of silver.messages that has them, whose name is in `_file`.

    A replay takes an end back: then its file is written anew, and counted anew. ``known`` is what was counted before,
    of files that stayed as they were. Of messages that ended elsewhere it is only noted that there are some.
    """
    within: dict[float, list[str]] = {}
    for queue, seconds in _latencies(objectives):
        within.setdefault(seconds, []).append(queue)
    seen = "deliveries IS NOT NULL"
    counts = [f"struct(CAST(NULL AS double) AS within, true AS applies, count_if({seen}) AS n)"]
    for seconds, queues in within.items():
        applies = "true" if ALL in queues else f"queue IN ({', '.join(map(quoted, queues))})"
        count = f"count_if({seen} AND total <= {seconds!r}D)"
        counts.append(f"struct({seconds!r}D AS within, {applies} AS applies, {count} AS n)")
    return spark.sql(
        f"""
        WITH counted AS (
          SELECT _file AS file, queue, type, state, day, tenant,
            coalesce(sum(payload_bytes) FILTER (WHERE {seen}), 0L) AS payload_bytes,
            coalesce(sum(result_bytes) FILTER (WHERE {seen}), 0L) AS result_bytes,
            inline(array({", ".join(counts)}))
          FROM {{messages}} GROUP BY tenant, day, _file, queue, type, state
        )
        SELECT file, {quoted(limits(objectives))} AS limits, queue, type, state, within, n, payload_bytes, result_bytes,
          day, tenant
        FROM counted WHERE within IS NULL OR (applies AND state = 'done')
        UNION ALL
        SELECT file, limits, queue, type, state, within, n, payload_bytes, result_bytes, day, tenant FROM {{known}}
        """,
        messages=silver_messages,
        known=known,
    )


def limits(objectives: Sequence[Objective]) -> str:
    """What tells facts by their limits: others cannot be summed for these objectives."""
    return hashlib.blake2b(repr(_latencies(objectives)).encode(), digest_size=6).hexdigest()


def _latencies(objectives: Sequence[Objective]) -> list[tuple[str, float]]:
    return sorted((one.queue, one.within) for one in effective(objectives) if one.within is not None)
