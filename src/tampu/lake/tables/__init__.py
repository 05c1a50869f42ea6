"""The tables of the lake. One table is one function over DataFrames, with its columns, key and version beside it; this
is what users query, and it changes by version only.

`bronze` is what the store tells, `silver` what becomes of each message, `facts` what a run adds to each minute, and
`queues` and `days` are gold. Tables are partitioned by `day` (the UTC date of the column in brackets) and `tenant`.
"""

from __future__ import annotations

from tampu.lake.tables import bronze, days, facts, queues, silver
from tampu.lake.tables.schema import PARTITION_BY, TIME, Table, columns, table

__all__ = ["BY_NAME", "GOLD", "INTERNAL", "LINEAGE", "PARTITION_BY", "QUEUES", "TABLES", "TIME", "Table", "table"]

QUEUES = (queues.queue_minutes, queues.queue_hours, queues.queue_days)
"""Each after those that it reads. What waits in a queue is in them on every day, also where nothing happened."""
GOLD = (*QUEUES, days.failures, days.tenant_days, days.workers, days.tasks, days.slo)
TABLES = (bronze.EVENTS, bronze.MESSAGES, bronze.AUDIT, silver.messages, silver.attempts, *GOLD)
INTERNAL = (facts.counts, facts.deliveries, facts.failures, facts.stays, facts.waiting, silver.carried, facts.ends)
"""The pipeline's own business; users do not query them."""

BY_NAME = {table.name: table for table in TABLES}

LINEAGE = Table(
    "_lineage",
    2,
    "each run of the pipeline; of the whole lake, so without days and tenants",
    ("run",),
    columns(
        """
        count: run
        text: reader
        time: started finished
        text: from_position to_position  -- as JSON, like those that follow
        text: rows      -- written, by table
        text: seconds   -- by step
        text: versions  -- of the tables, and of what ran
        text: failed    -- users' tables that could not be built, and why
        text: checks    -- rows that break an expectation, by table and expectation
        """,
        by_day=False,
    ),
)
