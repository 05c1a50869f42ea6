"""Gold: the numbers people look at, recomputed for whole days.

A day is computed anew from bronze and silver whenever a run touches it, so a run that is repeated, or that brings late
events, leaves the same rows as one that saw everything at once. What each table counts is said beside its columns in
`tampu.lake.tables` and in docs/reference/lake-tables.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import date, datetime
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from tampu.lake import gold_days, gold_failures, gold_minutes, gold_slo
from tampu.lake.objectives import Objective
from tampu.lake.shaping import MOVES, STANDS, among, shaped
from tampu.lake.tables import BY_NAME, TABLES
from tampu.spark.columns import ddl

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NAMES = tuple(table.name for table in TABLES if table.name.startswith("gold."))


def refresh(
    days: Iterable[date],
    events: DataFrame,
    attempts: DataFrame,
    messages: DataFrame,
    stays: DataFrame,
    carried: DataFrame,
    until: datetime,
    objectives: Sequence[Objective] = (),
) -> dict[str, DataFrame]:
    """All rows of every gold table for these days.

    ``events``, ``attempts``, ``messages``: bronze.events, silver.attempts, silver.messages of the days. ``stays``:
    closed stays in ready that ended on the first of the days or later. ``carried``: events of what has not ended.
    ``until``: the time of the newest event of all; what is ready then is ready in every minute up to it.
    """
    wanted = sorted(set(days))
    if not wanted:
        spark = events.sparkSession
        return {name: spark.createDataFrame([], ddl(BY_NAME[name].schema)) for name in NAMES}
    on = F.col("day").isin(wanted)
    events = events.where(on & among(F.col("verb"), MOVES | STANDS))
    attempts, messages = attempts.where(on), messages.where(on)
    found = {
        "gold.queue_minutes": gold_minutes.queue_minutes(wanted, events, attempts, stays, carried, until),
        "gold.failures": gold_failures.failures(events, attempts),
        "gold.tenant_days": gold_days.tenant_days(events, attempts, messages),
        "gold.workers": gold_days.workers(attempts),
        "gold.tasks": gold_days.tasks(attempts, messages),
        "gold.slo": gold_slo.slo(messages, objectives),
    }
    return {name: shaped(frame, name) for name, frame in found.items()}
