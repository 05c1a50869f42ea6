"""Bronze: the journal as it is, and messages as they ended. How rows are read from the store is in `lake.bronze`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tampu.lake.tables.schema import Table, columns
from tampu.lake.tables.words import ENDS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EVENTS = Table(
    "bronze.events",
    1,
    "each transition of the journal, once (at)",
    ("partition", "offset"),
    columns("""
        text: partition
        count: offset
        time: at
        text: queue verb id state
        int: attempt
        text: type worker detail fingerprint run
    """),
)

MESSAGES = Table(
    "bronze.messages",
    2,
    "messages as they ended: payload, result, error (ended_at); one row per end, so a replayed message has several",
    ("id", "ended_partition", "ended_offset"),
    columns("""
        text: id queue state type
        bytes: payload
        text: content_type
        pairs: headers labels
        count: priority
        int: attempts max_attempts
        time: created_at ended_at deadline
        text: key idempotency_key correlation_id causation_id parent_id group source reason last_error result
        flag: missing  -- it was removed from the store before the pipeline came by: payload unknown
        text: ended_partition
        count: ended_offset
        text: run
        count: payload_bytes result_bytes
    """),
    expect={"a message has ended": f"state IN ({ENDS})"},
)


AUDIT = Table(
    "bronze.audit",
    1,
    "who did what besides publish, claim and settle, each record once (at)",
    ("id",),
    columns("""
        text: id
        time: at
        text: actor action target request_id
        text: before after  -- as JSON
        text: run
    """),
)


def ends_not_known(spark: SparkSession, ends: DataFrame, events: DataFrame) -> DataFrame:
    """Ends without adoptions that tell of one the lake has: their store was moved, and the old one fed it too."""
    return spark.sql(
        f"""
        WITH told AS (
          SELECT partition, offset, verb, state,
            lag(state) OVER (PARTITION BY tenant, id ORDER BY partition, offset) AS before
          FROM {{events}} WHERE state IN ({ENDS}) OR verb = 'replay'
        )
        SELECT * FROM {{ends}} LEFT ANTI JOIN (SELECT * FROM told WHERE verb = 'adopt' AND state = before) AS known
          USING (partition, offset)
        """,
        events=events,
        ends=ends,
    ).select(*[f"`{name}`" for name in ends.columns])
