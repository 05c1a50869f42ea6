"""The tables of the lake. One table is one function over DataFrames, with its columns, key and version beside it; this
is what users query, and it changes by version only.

`bronze` is what the store tells, `silver` what becomes of each message, `facts` what a run adds to each minute, and
`queues` and `days` are gold. Tables are partitioned by `day` (the UTC date of the column in brackets) and `tenant`.
"""

from __future__ import annotations

from tampu.lake.tables import bronze, days, facts, queues, silver
from tampu.lake.tables.schema import PARTITION_BY, TIME, Table, columns

__all__ = ["BY_NAME", "INTERNAL", "LINEAGE", "PARTITION_BY", "TABLES", "TIME", "Table"]

TABLES = (
    bronze.EVENTS,
    bronze.MESSAGES,
    silver.MESSAGES,
    silver.ATTEMPTS,
    queues.QUEUE_MINUTES,
    queues.QUEUE_HOURS,
    queues.QUEUE_DAYS,
    days.FAILURES,
    days.TENANT_DAYS,
    days.WORKERS,
    days.TASKS,
    days.SLO,
)
INTERNAL = (facts.COUNTS, facts.DELIVERIES, facts.FAILURES, facts.STAYS, facts.WAITING, silver.CARRIED)
"""The pipeline's own business; users do not query them."""

BY_NAME = {table.name: table for table in TABLES}

LINEAGE = Table(
    "_lineage",
    1,
    "each run of the pipeline; of the whole lake, so without days and tenants",
    ("run",),
    columns(
        """
        count: run
        text: reader
        time: started finished
        text: from_position to_position  -- as JSON, like the three that follow
        text: rows      -- written, by table
        text: seconds   -- by step
        text: versions  -- of the tables, and of what ran
        """,
        by_day=False,
    ),
)
