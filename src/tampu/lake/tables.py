"""The tables of the lake: their columns, partitions and versions. This is what users query; it changes by version only.

A new column goes to the end, is nullable, and raises the table's version. Times are UTC in microseconds, durations are
seconds as doubles. Every table is partitioned by `day` (the UTC date of the column in brackets) and `tenant`.
"""

from __future__ import annotations

import msgspec
import pyarrow as pa

TIME = pa.timestamp("us", tz="UTC")
PAIRS = pa.map_(pa.string(), pa.string())
PARTITION_BY = ("day", "tenant")


class Table(msgspec.Struct, frozen=True):
    name: str
    """layer.table"""
    version: int
    about: str
    key: tuple[str, ...]
    """What makes a row unique."""
    schema: pa.Schema

    @property
    def path(self) -> str:
        return self.name.replace(".", "/")


def _columns(*fields: tuple[str, pa.DataType]) -> pa.Schema:
    return pa.schema([*fields, ("day", pa.date32()), ("tenant", pa.string())])


_COUNT, _SECONDS, _TEXT = pa.int64(), pa.float64(), pa.string()

_PERCENTILES = tuple((f"{what}_{p}", _SECONDS) for what in ("wait", "run") for p in ("p50", "p95", "p99"))

TABLES = (
    Table(
        "bronze.events",
        1,
        "each transition of the journal, once (at)",
        ("partition", "offset"),
        _columns(
            ("partition", _TEXT),
            ("offset", _COUNT),
            ("at", TIME),
            ("queue", _TEXT),
            ("verb", _TEXT),
            ("id", _TEXT),
            ("state", _TEXT),
            ("attempt", pa.int32()),
            ("type", _TEXT),
            ("worker", _TEXT),
            ("detail", _TEXT),
            ("fingerprint", _TEXT),
            ("run", _TEXT),
        ),
    ),
    Table(
        "bronze.messages",
        1,
        "messages as they ended: payload, result, error (ended_at); one row per end, so a replayed message has several",
        ("id", "ended_offset"),
        _columns(
            ("id", _TEXT),
            ("queue", _TEXT),
            ("state", _TEXT),
            ("type", _TEXT),
            ("payload", pa.binary()),
            ("content_type", _TEXT),
            ("headers", PAIRS),
            ("labels", PAIRS),
            ("priority", _COUNT),
            ("attempts", pa.int32()),
            ("max_attempts", pa.int32()),
            ("created_at", TIME),
            ("ended_at", TIME),
            ("deadline", TIME),
            ("key", _TEXT),
            ("idempotency_key", _TEXT),
            ("correlation_id", _TEXT),
            ("causation_id", _TEXT),
            ("parent_id", _TEXT),
            ("group", _TEXT),
            ("source", _TEXT),
            ("reason", _TEXT),
            ("last_error", _TEXT),
            ("result", _TEXT),
            ("missing", pa.bool_()),  # it was removed from the store before the pipeline came by: payload unknown
            ("ended_partition", _TEXT),
            ("ended_offset", _COUNT),
            ("run", _TEXT),
        ),
    ),
    Table(
        "silver.messages",
        1,
        "one row per message that has ended, as it ended last (ended_at)",
        ("id",),
        _columns(
            ("id", _TEXT),
            ("queue", _TEXT),
            ("type", _TEXT),
            ("state", _TEXT),
            ("created_at", TIME),
            ("first_claimed_at", TIME),
            ("ended_at", TIME),
            ("attempts", pa.int32()),
            ("deliveries", pa.int32()),  # claims, whether or not they counted
            ("replays", pa.int32()),
            ("wait", _SECONDS),  # in ready, summed over its deliveries
            ("run", _SECONDS),  # leased, summed
            ("total", _SECONDS),  # from publish to end
            ("worker", _TEXT),  # of the last delivery
            ("error", _TEXT),  # of the last failure
            ("fingerprint", _TEXT),
            ("correlation_id", _TEXT),
            ("causation_id", _TEXT),
            ("parent_id", _TEXT),
            ("group", _TEXT),
            ("source", _TEXT),
            ("payload_bytes", _COUNT),
            ("result_bytes", _COUNT),
        ),
    ),
    Table(
        "silver.attempts",
        1,
        "each delivery that has ended (ended_at)",
        ("id", "claimed_at"),
        _columns(
            ("id", _TEXT),
            ("queue", _TEXT),
            ("type", _TEXT),
            ("attempt", pa.int32()),
            ("ready_at", TIME),
            ("claimed_at", TIME),
            ("ended_at", TIME),
            ("wait", _SECONDS),  # claimed_at - ready_at
            ("run", _SECONDS),  # ended_at - claimed_at
            ("worker", _TEXT),
            ("outcome", _TEXT),  # ack nack reject release reap cancel
            ("error", _TEXT),
            ("fingerprint", _TEXT),
        ),
    ),
    Table(
        "gold.queue_minutes",
        1,
        "what each queue did, minute by minute (minute)",
        ("tenant", "queue", "minute"),
        _columns(
            ("queue", _TEXT),
            ("minute", TIME),
            ("published", _COUNT),
            ("claimed", _COUNT),
            ("done", _COUNT),
            ("failed", _COUNT),  # attempts that ended by nack, reject or a lease that ran out
            ("dead", _COUNT),
            ("cancelled", _COUNT),
            ("expired", _COUNT),
            ("released", _COUNT),
            ("replayed", _COUNT),
            ("in_rate", _SECONDS),  # published per second
            ("out_rate", _SECONDS),  # ended per second
            *_PERCENTILES,  # of deliveries that ended in this minute
            ("depth", _COUNT),  # ready at the end of the minute
            ("oldest", _SECONDS),  # how long the oldest of them had been ready then; null when none was
        ),
    ),
    Table(
        "gold.failures",
        1,
        "failures that look alike, day by day (last_at)",
        ("tenant", "day", "queue", "fingerprint"),
        _columns(
            ("queue", _TEXT),
            ("fingerprint", _TEXT),
            ("error", _TEXT),  # of the latest
            ("attempts", _COUNT),
            ("messages", _COUNT),
            ("dead", _COUNT),
            ("types", pa.list_(_TEXT)),
            ("first_at", TIME),
            ("last_at", TIME),
            ("sample_ids", pa.list_(_TEXT)),  # the first five in the order of ids
        ),
    ),
    Table(
        "gold.tenant_days",
        1,
        "what each tenant used in a day",
        ("tenant", "day"),
        _columns(
            ("published", _COUNT),
            ("deliveries", _COUNT),
            ("done", _COUNT),
            ("dead", _COUNT),
            ("cancelled", _COUNT),
            ("expired", _COUNT),
            ("run_seconds", _SECONDS),
            ("payload_bytes", _COUNT),  # of messages that ended that day
            ("result_bytes", _COUNT),
            ("queues", _COUNT),
        ),
    ),
    Table(
        "gold.workers",
        1,
        "what each worker did in a day (ended_at of its deliveries)",
        ("tenant", "day", "worker"),
        _columns(
            ("worker", _TEXT),
            ("deliveries", _COUNT),
            ("done", _COUNT),
            ("failed", _COUNT),
            ("lost", _COUNT),  # leases that ran out
            ("released", _COUNT),
            ("run_seconds", _SECONDS),
            ("run_p50", _SECONDS),
            ("run_p95", _SECONDS),
            ("run_p99", _SECONDS),
            ("first_at", TIME),
            ("last_at", TIME),
        ),
    ),
    Table(
        "gold.tasks",
        1,
        "how each type of message fared in a day (ended_at of its deliveries)",
        ("tenant", "day", "queue", "type"),
        _columns(
            ("queue", _TEXT),
            ("type", _TEXT),
            ("deliveries", _COUNT),
            ("done", _COUNT),
            ("failed", _COUNT),
            ("dead", _COUNT),
            ("failure_ratio", _SECONDS),  # failed / deliveries
            *_PERCENTILES,
        ),
    ),
    Table(
        "gold.slo",
        1,
        "objectives and how much of their budget a day burnt (ended_at)",
        ("tenant", "day", "queue", "objective"),
        _columns(
            ("queue", _TEXT),
            ("objective", _TEXT),  # success, or latency
            ("target", _SECONDS),  # the share that must be good
            ("within", _SECONDS),  # seconds from publish to done, for latency; null for success
            ("good", _COUNT),
            ("total", _COUNT),
            ("ratio", _SECONDS),
            ("burn", _SECONDS),  # (1 - ratio) / (1 - target): above 1 the budget does not last
        ),
    ),
)

BY_NAME = {table.name: table for table in TABLES}

LINEAGE = Table(
    "_lineage",
    1,
    "each run of the pipeline; of the whole lake, so without days and tenants",
    ("run",),
    pa.schema(
        [
            ("run", _COUNT),
            ("reader", _TEXT),
            ("started", TIME),
            ("finished", TIME),
            ("from_position", _TEXT),  # as JSON, like the four that follow
            ("to_position", _TEXT),
            ("rows", _TEXT),  # written, by table
            ("seconds", _TEXT),  # by step
            ("versions", _TEXT),  # of the tables, and of what ran
        ]
    ),
)
