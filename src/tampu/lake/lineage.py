"""Lineage: a row per run that moved something: from where to where, what it wrote, how long it took, by what."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import msgspec
import pyarrow as pa

from tampu.lake.storage import parquet
from tampu.lake.storage.lake import Lake, LakeTable
from tampu.lake.storage.snapshots import Mark
from tampu.lake.tables import LINEAGE
from tampu.model.journal import Position


class RunReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a run did."""

    run: int
    """0: there was nothing new."""
    reader: str
    started: datetime
    finished: datetime
    from_position: Position
    to_position: Position
    rows: dict[str, int] = {}
    seconds: dict[str, float] = {}
    versions: dict[str, int] = {}
    failed: dict[str, str] = {}
    """Users' tables that could not be built, and why."""
    checks: dict[str, dict[str, int]] = {}
    """How many of the rows break an expectation, by table and expectation."""

    @property
    def news(self) -> bool:
        return self.run > 0

    @property
    def transitions(self) -> int:
        return sum(end - self.from_position.get(p, 0) for p, end in self.to_position.items())

    @property
    def took(self) -> float:
        return (self.finished - self.started).total_seconds()


def table(lake: Lake) -> LakeTable:
    return lake.table(LINEAGE, parted=False)


def note(lake: Lake, report: RunReport, mark: Mark) -> None:
    """One row, written by the driver; not again if this run is there."""
    here = table(lake)
    found = here.create()
    if found.run(mark.reader) >= mark.run:
        return
    row = msgspec.structs.asdict(report)
    row["seconds"] = {step: round(took, 3) for step, took in report.seconds.items()}
    row["versions"] = {**report.versions, **_software()}
    row = {name: json.dumps(value) if isinstance(value, dict) else value for name, value in row.items()}
    batch = pa.RecordBatch.from_pylist([row], schema=LINEAGE.schema)
    new = parquet.write_batches(here.target, f"r{mark.run}", [batch])
    found.commit(list(new), mark)


def latest(lake: Lake, most: int = 20) -> list[dict[str, Any]]:
    """The last runs, newest first."""
    found = table(lake).find()
    if found is None:
        return []
    rows: list[dict[str, Any]] = found.arrow().to_table().sort_by([("run", "descending")])[:most].to_pylist()
    for row in rows:
        for name in ("from_position", "to_position", "rows", "seconds", "versions", "failed", "checks"):
            row[name] = json.loads(row[name] or "{}")  # of an earlier version, without some of them
    return rows


def _software() -> Mapping[str, str]:
    found = {"python": platform.python_version()}
    for package in ("tampu", "pyspark", "deltalake", "pyarrow"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "?"
    return found
