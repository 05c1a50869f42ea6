"""DataFrames in the shape of the lake's tables, and the few expressions that silver and gold share.

Times are counted in whole microseconds since 1970, so that neither the time zone of the session nor the order in which
Spark adds numbers up can change a result.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F

from tampu.lake.tables import BY_NAME
from tampu.spark.columns import ddl

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

MINUTE = 60_000_000
DAY_MINUTES = 1440

_ENTERS = ("publish", "promote", "free", "replay")
SETTLES = frozenset(("ack", "nack", "reject", "release", "reap", "cancel"))
"""Verbs that end a delivery (a cancel may end a message that only waits, too)."""
MOVES = frozenset((*_ENTERS, "claim", *SETTLES, "expire", "purge"))
"""Verbs that change the state of a message."""
STANDS = frozenset(("replace", "ask_cancel"))
"""Verbs that leave the message where it is. A verb in neither set is a later version's, and is passed over."""
FAILS = frozenset(("nack", "reject", "reap"))
LIVE = frozenset(("ready", "delayed", "leased", "held"))
ENDS = frozenset(("done", "dead", "cancelled", "expired"))


def among(column: Column, words: Iterable[str]) -> Column:
    """Never null, so that it can be negated."""
    return F.coalesce(column.isin(*sorted(words)), F.lit(False))


def micros(column: Column) -> Column:
    return F.unix_micros(column)


def seconds(micros: Column) -> Column:
    return micros / F.lit(1e6)


def minute_of(time: Column) -> Column:
    """The number of the minute since 1970."""
    return F.floor(F.unix_seconds(time) / F.lit(60)).cast("bigint")


def minute_time(number: Column) -> Column:
    return F.timestamp_micros(number * F.lit(MINUTE))


def minute_day(number: Column) -> Column:
    return F.date_from_unix_date(F.floor(number / F.lit(DAY_MINUTES)).cast("int"))


def shaped(frame: DataFrame, schema: pa.Schema | str) -> DataFrame:
    """The columns of a table, in order, of the right types, all nullable."""
    wanted = BY_NAME[schema].schema if isinstance(schema, str) else schema
    types = dict(zip(wanted.names, _types(wanted), strict=True))
    # What may be null without a condition can be null for all Spark knows: a count becomes nullable like its column.
    # (Written as a comparison, since Spark sees through a plain true.)
    always = F.lit(1) == F.lit(1)
    return frame.select(*(F.when(always, F.col(f"`{name}`").cast(types[name])).alias(name) for name in wanted.names))


def _types(schema: pa.Schema) -> list[str]:
    return [ddl(pa.schema([field])).partition("` ")[2] for field in schema]


def counted(*names: str) -> list[Column]:
    """Counts of transitions, under the names they have in gold."""
    verb, state = F.col("verb"), F.col("state")
    what = {
        "published": verb == "publish",
        "claimed": verb == "claim",
        "done": state == "done",
        "failed": among(verb, FAILS),
        "dead": state == "dead",
        "cancelled": state == "cancelled",
        "expired": state == "expired",
        "released": verb == "release",
        "replayed": verb == "replay",
    }
    return [F.count(F.when(what[name], True)).alias(name) for name in names]


def percentiles(*columns: str) -> list[Column]:
    """p50, p95 and p99 of each, exact; between two values, on the line."""
    found = []
    for column in columns:
        three = F.percentile(column, [0.5, 0.95, 0.99])
        found += [three[i].alias(f"{column}_{name}") for i, name in enumerate(("p50", "p95", "p99"))]
    return found
