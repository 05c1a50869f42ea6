"""What a table of the lake is: its name, version, key and columns. A new column goes to the end, is nullable, and
raises
the version. Times are UTC in microseconds, durations are seconds as doubles."""

from __future__ import annotations

import msgspec
import pyarrow as pa

TIME = pa.timestamp("us", tz="UTC")
PARTITION_BY = ("day", "tenant")
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


def columns(text: str, *, by_day: bool = True) -> pa.Schema:
    """``type: name name`` in each line, a remark behind ``--``; with the columns of the partition at the end."""
    lines = [line.partition("--")[0].split() for line in text.splitlines() if line.strip()]
    fields = [(name, _TYPES[kind.rstrip(":")]) for kind, *names in lines for name in names]
    return pa.schema([*fields, *([("day", pa.date32()), ("tenant", pa.string())] if by_day else [])])
