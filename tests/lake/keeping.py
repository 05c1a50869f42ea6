"""Keeps silver and gold in memory as runs do, from a journal cut into pieces, and compares rows."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tampu.lake import gold, silver
from tampu.lake.objectives import Objective
from tampu.lake.tables import BY_NAME

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Row = dict[str, Any]


class Keeping:
    """The tables of a lake as lists of rows."""

    def __init__(self, spark: SparkSession, objectives: Sequence[Objective] = ()) -> None:
        self.spark, self.objectives = spark, objectives
        self.events: list[Row] = []
        self.carried: list[Row] = []
        self.stays: list[Row] = []
        self.silver: dict[str, list[Row]] = {"silver.attempts": [], "silver.messages": []}
        self.gold: dict[str, list[Row]] = {name: [] for name in gold.NAMES}
        self.until: Any = None
        self.stale: set[date] = set()
        """Days that gold does not know yet."""

    def frame(self, rows: Iterable[Row], schema: pa.Schema | str) -> DataFrame:
        wanted = BY_NAME[schema].schema if isinstance(schema, str) else schema
        return self.spark.createDataFrame(pa.Table.from_pylist(list(rows), schema=wanted))

    def run(self, new: list[Row], messages: list[Row], *, refresh: bool = True) -> None:
        """One run of the pipeline over new rows of bronze; one that ends before gold leaves its days to the next."""
        fresh = self.frame(new, "bronze.events")
        back = {(r["tenant"], r["id"]) for r in rows(silver.returning(fresh))}
        self.events += new
        # As bronze would answer when it holds the new events already.
        earlier = self.frame([e for e in self.events if (e["tenant"], e["id"]) in back], "bronze.events")
        bodies = self.frame(messages, "bronze.messages")
        with silver.step(fresh, self.frame(self.carried, silver.CARRIED), earlier, bodies) as step:
            days = {e["day"] for e in new}
            gone = {(r["tenant"], r["id"]) for r in rows(step.replaced)}
            days |= {m["day"] for m in self.silver["silver.messages"] if (m["tenant"], m["id"]) in gone}
            kept = [m for m in self.silver["silver.messages"] if (m["tenant"], m["id"]) not in gone]
            self.silver["silver.messages"] = kept + rows(step.messages)
            self.silver["silver.attempts"] += rows(step.attempts)
            self.stays += rows(step.stays)
            self.carried = rows(step.carried)
        newest = max((e["at"] for e in new), default=self.until)
        if self.until is not None and newest is not None:
            days |= set(_span(self.until.date(), newest.date()))
            newest = max(newest, self.until)
        self.until = newest
        self.stale |= days
        if refresh and self.stale:
            self.refresh(self.stale)
            self.stale = set()

    def refresh(self, days: set[date]) -> None:
        def of_days(name: str, some: list[Row]) -> DataFrame:
            return self.frame([r for r in some if r["day"] in days], name)

        found = gold.refresh(
            days,
            of_days("bronze.events", self.events),
            of_days("silver.attempts", self.silver["silver.attempts"]),
            of_days("silver.messages", self.silver["silver.messages"]),
            self.frame([s for s in self.stays if s["day"] >= min(days)], silver.STAYS),
            self.frame(self.carried, silver.CARRIED),
            self.until,
            self.objectives,
        )
        for name, frame in found.items():
            self.gold[name] = [r for r in self.gold[name] if r["day"] not in days] + rows(frame)

    def run_all(
        self, events: list[Row], messages: list[Row], cuts: Sequence[int] = (), *, refresh_every: int = 1
    ) -> None:
        """The whole journal, cut at these positions; gold after every so many runs, and at the end."""
        edges = [0, *sorted(cuts), len(events)]
        for run, (begin, end) in enumerate(itertools.pairwise(edges), start=1):
            new = events[begin:end]
            offsets = {e["offset"] for e in new}
            bodies = [m for m in messages if m["ended_offset"] in offsets]
            self.run(new, bodies, refresh=run % refresh_every == 0 or end == len(events))


def _span(first: date, last: date) -> Iterable[date]:
    return (first + timedelta(days=n) for n in range((last - first).days + 1))


def rows(frame: DataFrame) -> list[Row]:
    found: list[Row] = frame.toArrow().to_pylist()
    return found


def assert_same(name: str, found: list[Row], expected: list[Row]) -> None:
    """The same rows, whatever their order; numbers may differ in their last digits."""
    columns = BY_NAME[name].schema.names
    for row in expected:
        assert set(row) == set(columns), f"{name}: columns {set(row) ^ set(columns)}"

    def order(row: Row) -> tuple[Any, ...]:
        exact = [c for c in columns if not isinstance(row[c], float | list)]
        return tuple((row[c] is not None, str(row[c])) for c in exact), str(row)

    def ordered(some: list[Row]) -> list[Row]:
        keys = [*BY_NAME[name].key, "day"]
        return sorted(some, key=lambda r: (tuple(str(r[k]) for k in keys), order(r)))

    left, right = ordered(found), ordered(expected)
    for a, b in zip(left, right, strict=False):
        wrong = {c: (a[c], b[c]) for c in columns if not _equal(a[c], b[c])}
        assert not wrong, f"{name}: {wrong} (found, expected) in {a}"
    assert len(left) == len(right), f"{name}: {len(left)} rows instead of {len(right)}"


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9)
    return bool(a == b)
