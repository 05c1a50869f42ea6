"""What a table of the lake is: its name, version, key, columns and the function that makes its rows.

A new column goes to the end, is nullable, and raises the version. Times are UTC in microseconds, durations are seconds
as doubles.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import pyarrow as pa

from tampu.model.errors import InvalidConfig

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TIME = pa.timestamp("us", tz="UTC")
PARTITION_BY = ("day", "tenant")
OURS = ("bronze", "silver", "gold")
NAME = re.compile(r"[a-z][a-z0-9_]*\.[a-z][a-z0-9_]*", re.ASCII)
_TYPES = {
    "text": pa.string(),
    "count": pa.int64(),
    "int": pa.int32(),
    "seconds": pa.float64(),
    "time": TIME,
    "flag": pa.bool_(),
    "bytes": pa.binary(),
    "pairs": pa.map_(pa.string(), pa.string()),
    "texts": pa.list_(pa.string()),
}
_GRAINS = {"day": len("2026-01-31"), "month": len("2026-01"), "all": 0}


class Table(msgspec.Struct, frozen=True):
    name: str
    """layer.table"""
    version: int
    about: str
    key: tuple[str, ...]
    """What makes a row unique."""
    schema: pa.Schema
    build: Callable[..., DataFrame] | None = None
    """Makes the rows of some days. Its arguments are named after the tables that it reads: see `argument`."""
    grain: Literal["day", "month", "all"] = "day"
    """What is computed at once: all of a day, of a month or of all time, of one tenant."""
    expect: dict[str, str] = {}
    """What must hold of each row, as SQL, by what it says."""
    unique: bool = True
    """The key is checked; else it only says what makes rows different."""
    ended: str | None = None
    """How many messages ended, as SQL over a row. Tables that say it must agree."""

    @property
    def path(self) -> str:
        return self.name.replace(".", "/")

    @property
    def arguments(self) -> Sequence[str]:
        return list(inspect.signature(self.build).parameters) if self.build is not None else []

    def period(self, day: str | None) -> str:
        """What is computed together with this day."""
        return (day or "")[: _GRAINS[self.grain]]

    def __call__(self, *args: Any, **given: Any) -> DataFrame:
        """The function alone: over any rows, without a lake."""
        if self.build is None:
            raise TypeError(f"{self.name} has no function")
        return self.build(*args, **given)


def argument(name: str) -> str:
    """How a function asks for a table: `silver_messages` is silver.messages, `facts_counts` is _facts.counts."""
    return name.lstrip("_").replace(".", "_")


def table(
    name: str,
    *,
    key: Sequence[str],
    version: int = 1,
    columns: pa.Schema | None = None,
    grain: Literal["day", "month", "all"] = "day",
    expect: Mapping[str, str] | None = None,
    unique: bool = True,
    ended: str | None = None,
) -> Callable[[Callable[..., DataFrame]], Table]:
    """Make a table of a function over DataFrames. What it gives must have the columns `day` and `tenant`; the others
    are those of the first frame it gives, if ``columns`` does not say. ``expect`` has conditions that each row must
    meet, by what they say; without ``unique`` the key is not checked. A user's table is in a layer of its own."""
    if grain not in _GRAINS:
        raise InvalidConfig(f"{name} has the grain {grain!r:.40}", field="grain", hint=f"one of {', '.join(_GRAINS)}")

    def made(build: Callable[..., DataFrame]) -> Table:
        about = " ".join((inspect.getdoc(build) or "").partition("\n\n")[0].split()).rstrip(".")
        known = tuple(key), columns or pa.schema([])
        return Table(name, version, about, *known, build, grain, dict(expect or {}), unique, ended)

    return made


def columns(text: str, *, by_day: bool = True) -> pa.Schema:
    """``type: name name`` in each line, a remark behind ``--``; with the columns of the partition at the end."""
    lines = [line.partition("--")[0].split() for line in text.splitlines() if line.strip()]
    fields = [(name, _TYPES[kind.rstrip(":")]) for kind, *names in lines for name in names]
    return pa.schema([*fields, *([("day", pa.date32()), ("tenant", pa.string())] if by_day else [])])
