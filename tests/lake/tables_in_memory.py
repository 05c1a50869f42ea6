"""Silver and gold of a journal cut into pieces, kept in memory: the functions of the tables alone, without a lake."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tampu.lake import jobs
from tampu.lake.objectives import Objective
from tampu.lake.tables import BY_NAME, INTERNAL, days, facts, queues, silver
from tests.spark.conftest import shared

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Row = dict[str, Any]
SCHEMAS = {table.name: table.schema for table in (*BY_NAME.values(), *INTERNAL)}


def frame(name: str, rows: Iterable[Row]) -> DataFrame:
    return shared().createDataFrame(pa.Table.from_pylist(list(rows), schema=SCHEMAS[name]))


def collected(name: str, found: DataFrame) -> list[Row]:
    """The rows, which must fit the table's columns."""
    schema = SCHEMAS[name]
    assert sorted(found.columns) == sorted(schema.names), name
    rows: list[Row] = found.select(*[f"`{column}`" for column in schema.names]).toArrow().cast(schema).to_pylist()
    return rows


class Keeping:
    """The tables of a lake as lists of rows."""

    def __init__(self) -> None:
        self.tables: dict[str, list[Row]] = {name: [] for name in SCHEMAS}

    def run_all(self, events: list[Row], messages: list[Row], cuts: Sequence[int] = ()) -> None:
        """The whole journal, cut at these positions."""
        for begin, end in itertools.pairwise([0, *sorted(cuts), len(events)]):
            offsets = {e["offset"] for e in events[begin:end]}
            self.run(events[begin:end], [m for m in messages if m["ended_offset"] in offsets])

    def run(self, new: list[Row], messages: list[Row]) -> None:
        """One run over new rows of bronze; what had ended and comes back is looked up, as a run does."""
        spark, known = shared(), self.tables
        back = {(e["tenant"], e["id"]) for e in new if e["verb"] in ("replay", "adopt")}
        carried = known[silver.carried.name]
        there = {e["offset"] for e in carried}
        old = carried + [
            e for e in known["bronze.events"] if (e["tenant"], e["id"]) in back and e["offset"] not in there
        ]
        known["bronze.events"] += new
        with jobs.configured(spark, 0):
            news, bodies = frame("bronze.events", new), frame("bronze.messages", messages)
            histories = silver.histories(spark, news, frame("bronze.events", old), bodies).localCheckpoint()
            gone = {(r.tenant, r.id, r.ended_at.timestamp()) for r in silver.replaced(spark, histories).collect()}
            kept = [m for m in known["silver.messages"] if _end(m) not in gone]
            assert len(kept) == len(known["silver.messages"]) - len(gone), "what is replaced was there"
            known["silver.messages"] = kept
            attempts = silver.attempts(spark, histories)
            for name, found in {
                "silver.attempts": attempts,
                "silver.messages": silver.messages(spark, histories),
                "_facts.counts": facts.counts(spark, news),
                "_facts.deliveries": facts.deliveries(spark, attempts),
                "_facts.failures": facts.failures(spark, histories),
                "_facts.stays": facts.stays(spark, histories),
            }.items():
                known[name] += collected(name, found)
            known["_facts.waiting"] = collected("_facts.waiting", facts.waiting(spark, histories))
            known["_state.carried"] = collected("_state.carried", silver.carried(spark, histories))

    def gold(self, objectives: Sequence[Objective] = ()) -> dict[str, list[Row]]:
        """All days at once."""
        spark, at = shared(), [e["at"] for e in self.tables["bronze.events"]]
        first, last = min(at).date(), max(at).date()
        whole: list[date] = [first + timedelta(days=n) for n in range((last - first).days + 1)]
        with jobs.configured(spark, 0):
            counts, deliveries, failures, stays, waiting, messages = (
                frame(name, self.tables[name])
                for name in (*(f"_facts.{n}" for n in ("counts", "deliveries", "failures", "stays", "waiting")),
                             "silver.messages")
            )  # fmt: skip
            minutes = queues.queue_minutes(spark, counts, deliveries, stays, waiting, whole, max(at)).localCheckpoint()
            ends = facts.ends(spark, messages.selectExpr("*", "'one' AS _file"), frame("_facts.ends", []), objectives)
            found = {
                "gold.queue_minutes": minutes,
                "gold.queue_hours": queues.queue_hours(spark, minutes, deliveries),
                "gold.queue_days": queues.queue_days(spark, minutes, deliveries),
                "gold.failures": days.failures(spark, failures),
                "gold.tenant_days": days.tenant_days(spark, counts, deliveries, ends),
                "gold.workers": days.workers(spark, deliveries),
                "gold.tasks": days.tasks(spark, deliveries, ends),
                "gold.slo": days.slo(spark, ends, objectives),
            }
            return {name: collected(name, rows) for name, rows in found.items()}


def _end(message: Row) -> tuple[str, str, float]:
    return message["tenant"], message["id"], message["ended_at"].timestamp()


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
