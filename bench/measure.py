"""What the measurements share: timing in turns, so that a noisy machine affects all sides equally, and the report."""

from __future__ import annotations

import contextlib
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table

PAYLOAD = b"x" * 200
Side = Callable[[Path], float]
"""Runs in an empty folder and answers with messages per second."""


class Row(msgspec.Struct, frozen=True):
    """One line of the report."""

    what: str
    value: float
    unit: str
    target: str = ""
    note: str = ""


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="tampu-bench-") as name:
        yield Path(name)


def rate(count: int, work: Callable[[], Any]) -> float:
    began = time.perf_counter()
    work()
    return count / (time.perf_counter() - began)


def in_turns(sides: dict[str, Side], rounds: int) -> dict[str, list[float]]:
    """Each side once per round, in changing order; the rates of every round."""
    names = list(sides)
    found: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(rounds):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            with folder() as place:
                found[name].append(sides[name](place))
    return found


def ratio(found: dict[str, list[float]], ours: str, theirs: str) -> tuple[float, float, float]:
    """Median, lowest and highest of the ratios within a round."""
    ratios = [a / b for a, b in zip(found[ours], found[theirs], strict=True)]
    return statistics.median(ratios), min(ratios), max(ratios)


def rates(found: dict[str, list[float]]) -> list[Row]:
    return [Row(name, statistics.median(values), "messages/s") for name, values in found.items()]


def ratio_row(found: dict[str, list[float]], ours: str, theirs: str, target: str) -> Row:
    middle, low, high = ratio(found, ours, theirs)
    return Row(f"{ours} / {theirs}", middle, "ratio", target, f"{low:.2f} to {high:.2f} over {len(found[ours])} rounds")


def show(console: Console, title: str, rows: list[Row]) -> None:
    table = Table(title=title, title_justify="left")
    for column in ("what", "value", "unit", "target", "note"):
        table.add_column(column, justify="right" if column == "value" else "left")
    for row in rows:
        value = f"{row.value:,.0f}" if row.value >= 1000 else f"{row.value:.3g}"
        table.add_row(row.what, value, row.unit, row.target, row.note)
    console.print(table)


def write(path: Path, report: dict[str, list[Row]]) -> None:
    path.write_text(
        json.dumps({title: [msgspec.to_builtins(row) for row in rows] for title, rows in report.items()}, indent=1)
    )
