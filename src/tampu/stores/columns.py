"""The columns of messages, deliveries and the journal, defined once as Arrow schemas; Spark uses the same.

Spark compares the first Arrow batch with the declared schema exactly: same order, no large strings, everything
nullable, times in UTC with microseconds.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import pyarrow as pa

from tampu.engines.encoding import STATES
from tampu.model.errors import InvalidConfig

TIME = pa.timestamp("us", tz="UTC")
PAIRS = pa.map_(pa.string(), pa.string())

MESSAGES = pa.schema(
    [
        ("id", pa.string()),
        ("tenant", pa.string()),
        ("queue", pa.string()),
        ("state", pa.string()),
        ("type", pa.string()),
        ("payload", pa.binary()),
        ("content_type", pa.string()),
        ("headers", PAIRS),
        ("labels", PAIRS),
        ("priority", pa.int64()),
        ("attempts", pa.int32()),
        ("max_attempts", pa.int32()),
        ("created_at", TIME),
        ("run_at", TIME),
        ("deadline", TIME),
        ("expires_at", TIME),
        ("ended_at", TIME),
        ("key", pa.string()),
        ("idempotency_key", pa.string()),
        ("correlation_id", pa.string()),
        ("causation_id", pa.string()),
        ("parent_id", pa.string()),
        ("group", pa.string()),
        ("source", pa.string()),
        ("reason", pa.string()),
        ("last_error", pa.string()),
        ("result", pa.string()),  # as JSON
    ]
)

POSITION = pa.field("position", pa.string())
"""Optional column of a snapshot: the journal position, as ``startingOffsets`` takes it."""

DELIVERIES = pa.schema(
    [
        *MESSAGES,
        pa.field("delivery", pa.int64()),  # number of this delivery for its consumer, without gaps
        pa.field("receipt", pa.string()),
    ]
)

JOURNAL = pa.schema(
    [
        ("partition", pa.string()),
        ("offset", pa.int64()),
        ("at", TIME),
        ("tenant", pa.string()),
        ("queue", pa.string()),
        ("verb", pa.string()),
        ("id", pa.string()),
        ("state", pa.string()),  # after the transition; null if the message was removed
        ("attempt", pa.int32()),
        ("type", pa.string()),
        ("worker", pa.string()),
        ("detail", pa.string()),
        ("fingerprint", pa.string()),
    ]
)

_NAMES = {
    pa.string(): "string",
    pa.binary(): "binary",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float64(): "double",
    pa.bool_(): "boolean",
    pa.date32(): "date",
    TIME: "timestamp",
    PAIRS: "map<string,string>",
    pa.list_(pa.string()): "array<string>",
}


@functools.cache
def state_names() -> pa.Array:
    """Names of states by code. Not built on import: the first array made from a list imports pandas, which takes longer
    than a pipeline run without new data."""
    return pa.array([state.value for state in STATES], pa.string())


def chosen(schema: pa.Schema, names: Sequence[str]) -> pa.Schema:
    """Only these columns, in this order; all columns if ``names`` is empty."""
    unknown = [name for name in names if name not in schema.names]
    if unknown or len(set(names)) < len(names):
        raise InvalidConfig(
            f"no such column: {', '.join(unknown)}" if unknown else "a column is named twice",
            field="columns",
            hint=f"the columns are {', '.join(schema.names)}",
        )
    return pa.schema([schema.field(name) for name in names]) if names else schema


def ddl(schema: pa.Schema) -> str:
    """The schema as Spark DDL."""
    return ", ".join(f"`{field.name}` {_NAMES[field.type]}" for field in schema)
