"""Keeps silver and gold in memory as runs do, from a journal cut into pieces, and compares rows."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from datetime import date, timedelta
from typing import Any

import pyarrow as pa

from tampu.lake import gold, walking
from tampu.lake.objectives import Objective
from tampu.lake.tables import BY_NAME
from tampu.lake.verbs import ENDS

Row = dict[str, Any]
CAME = {("adopt", state) for state in ENDS}
LINEAGE = ("correlation_id", "causation_id", "parent_id", "group", "source")


class Keeping:
    """The tables of a lake as lists of rows."""

    def __init__(self, objectives: Sequence[Objective] = ()) -> None:
        self.objectives = objectives
        self.events: list[Row] = []
        self.carried: list[Row] = []
        self.stays: list[Row] = []
        self.waiting: list[Row] = []
        self.silver: dict[str, list[Row]] = {"silver.attempts": [], "silver.messages": []}
        self.gold: dict[str, list[Row]] = {name: [] for name in gold.NAMES}
        self.until: Any = None
        self.stale: set[date] = set()
        """Days that gold does not know yet."""

    def run(self, new: list[Row], messages: list[Row], *, refresh: bool = True) -> None:
        """One run of the pipeline over new rows of bronze; one that ends before gold leaves its days to the next."""
        back = {(e["tenant"], e["id"]) for e in new if e["verb"] == "replay" or (e["verb"], e["state"]) in CAME}
        self.events += new
        # As bronze would answer when it holds the new events already.
        earlier = [e for e in self.events if (e["tenant"], e["id"]) in back]
        told = [e | {"new": True} for e in new] + [e | {"new": False} for e in (*self.carried, *earlier)]
        told += [body(m) for m in messages]
        found = walking.walk(pa.Table.from_pylist(told, schema=walking.TOLD))
        gone = {(r["tenant"], r["id"], r["ended_at"]) for r in found.replaced.to_pylist()}
        days = {e["day"] for e in new} | set(found.replaced["day"].to_pylist())
        kept = [m for m in self.silver["silver.messages"] if (m["tenant"], m["id"], m["ended_at"]) not in gone]
        assert len(kept) == len(self.silver["silver.messages"]) - len(gone), "what is replaced was there"
        self.silver["silver.messages"] = kept + found.messages.to_pylist()
        self.silver["silver.attempts"] += found.attempts.to_pylist()
        self.stays += found.stays.to_pylist()
        self.waiting = found.waiting.to_pylist()
        self.carried = found.carried.to_pylist()
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
        tables = {"bronze.events": self.events, "silver.attempts": self.silver["silver.attempts"],
                  "silver.messages": self.silver["silver.messages"]}  # fmt: skip
        tenants = {row["tenant"] for some in (*tables.values(), self.stays, self.waiting) for row in some}

        def read(rows: Iterable[Row], schema: pa.Schema, columns: Sequence[str]) -> list[pa.RecordBatch]:
            # A few rows at a time, as files have them.
            table = pa.Table.from_pylist(list(rows), schema=schema)
            batches: list[pa.RecordBatch] = table.select(columns).to_batches(max_chunksize=100)
            return batches

        for rows in self.gold.values():
            rows[:] = [row for row in rows if row["day"] not in days]
        for day, tenant in itertools.product(days, tenants):
            events, attempts, messages = (
                read((r for r in some if (r["day"], r["tenant"]) == (day, tenant)), BY_NAME[name].schema, columns)
                for (name, some), columns in zip(
                    tables.items(), (gold.EVENTS, gold.ATTEMPTS, gold.MESSAGES), strict=True
                )
            )
            stays = read(
                (s for s in self.stays if s["day"] >= day and s["tenant"] == tenant), walking.STAYS, gold.STAYS
            )
            waiting = read((w for w in self.waiting if w["tenant"] == tenant), walking.WAITING, gold.WAITING)
            it = gold.Day(day, tenant, events, attempts, messages, stays, waiting, self.until)
            for name, found in gold.compute(it, self.objectives):
                assert found.schema == BY_NAME[name].schema
                self.gold[name] += found.to_pylist()

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


def body(message: Row) -> Row:
    """As silver sees a row of bronze.messages."""
    sizes = {f"{name}_bytes": message.get(name) for name in ("payload", "result")}
    return {
        **{name: message.get(name) for name in (*LINEAGE, "id", "tenant", "type")},
        **{name: None if v is None else len(v.encode() if isinstance(v, str) else v) for name, v in sizes.items()},
        "partition": message["ended_partition"], "offset": message["ended_offset"],
        "at": message.get("created_at"), "new": True,
    }  # fmt: skip


def _span(first: date, last: date) -> Iterable[date]:
    return (first + timedelta(days=n) for n in range((last - first).days + 1))


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
