"""Groups over whole columns: names as numbers, sums and percentiles by group. What gold counts with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Codes = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]

MINUTE = 60_000_000
_PENDING = 1 << 18
"""Places that a tally holds back before it puts them among the others."""
_PERCENTS = (0.5, 0.95, 0.99)


class Names:
    """A number for each name met, null included, the same in every batch."""

    def __init__(self) -> None:
        self._known: dict[str | None, int] = {}

    def codes(self, column: pa.Array) -> Codes:
        told = column.dictionary_encode(null_encoding="encode")
        here = [self._known.setdefault(name, len(self._known)) for name in told.dictionary.to_pylist()]
        return np.array(here, np.int64)[told.indices.to_numpy()] if here else np.zeros(0, np.int64)

    def __len__(self) -> int:
        return len(self._known)

    @property
    def all(self) -> list[str | None]:
        return list(self._known)

    def number(self, name: str | None) -> int | None:
        return self._known.get(name)

    def among(self, codes: Codes, wanted: Iterable[str]) -> Flags:
        return np.isin(codes, [self._known[name] for name in wanted if name in self._known])


class Tally:
    """Counts of several things by place, kept only for places where something happened."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = list(names)
        self._place = np.zeros(0, np.int64)
        self._counts = np.zeros((0, len(self._names)), np.int64)
        self._new: list[tuple[Codes, Codes]] = []

    def add(self, place: Codes, which: Mapping[str, Flags]) -> None:
        """One more batch of rows: where each is, and of which things it is one."""
        here, at = _distinct(place)
        self._new.append((here, np.stack([counted(at, len(here), which[name]) for name in self._names], axis=1)))
        if sum(len(some) for some, _ in self._new) > max(_PENDING, len(self._place)):
            self._merge()

    def _merge(self) -> None:
        place = np.concatenate([self._place, *(some for some, _ in self._new)])
        counts = np.concatenate([self._counts, *(some for _, some in self._new)])
        order = np.argsort(place, kind="stable")
        self._place, start = np.unique(place[order], return_index=True)
        self._counts = np.add.reduceat(counts[order], start, axis=0) if len(start) else counts
        self._new = []

    @property
    def place(self) -> Codes:
        """In order."""
        if self._new:
            self._merge()
        return self._place

    def of(self, name: str) -> Codes:
        """By place."""
        if self._new:
            self._merge()
        return self._counts[:, self._names.index(name)]


def _distinct(codes: Codes) -> tuple[Codes, Codes]:
    """The codes that there are, in order, and which of them each is. As np.unique, which sorts: with few codes that is
    ten times the work."""
    if not len(codes) or int(codes.max()) > 8 * len(codes):
        here, at = np.unique(codes, return_inverse=True)
        return here, at
    there = np.bincount(codes) > 0
    return np.flatnonzero(there), (np.cumsum(there) - 1)[codes]


def numbers(column: pa.Array | pa.ChunkedArray) -> Codes:
    """Times in microseconds, or whole numbers; none may be null."""
    return np.asarray(column.cast(pa.int64()).to_numpy(), np.int64)


def floats(column: pa.Array) -> Floats:
    """Null is not a number (nan)."""
    return np.asarray(column.to_numpy(zero_copy_only=False), np.float64)


def counted(groups: Codes, size: int, which: Flags | None = None) -> Codes:
    """How many rows each group has."""
    return np.bincount(groups if which is None else groups[which], minlength=size).astype(np.int64)


def summed(groups: Codes, size: int, amounts: Codes) -> Codes:
    """The sum of whole numbers by group; exact, whatever the order."""
    total = np.zeros(size, np.int64)
    np.add.at(total, groups, amounts)
    return total


def extreme(groups: Codes, size: int, values: Codes, *, greatest: bool) -> Codes:
    """The least or greatest by group; each group has a value."""
    limits = np.iinfo(np.int64)
    found = np.full(size, limits.min if greatest else limits.max, np.int64)
    (np.maximum if greatest else np.minimum).at(found, groups, values)
    return found


def percentiles(groups: Codes, size: int, values: Floats) -> list[Floats]:
    """p50, p95 and p99 by group, exact; between two values, on the line. A group without values has nan."""
    there = ~np.isnan(values)
    groups, values = groups[there], values[there]
    order = np.lexsort((values, groups))
    ranked = values[order]
    count = counted(groups, size)
    start = np.concatenate(([0], np.cumsum(count)[:-1])) if size else np.zeros(0, np.int64)
    some = count > 0
    found = []
    for percent in _PERCENTS:
        place = (count[some] - 1) * percent
        low = np.floor(place).astype(np.int64)
        below, above = ranked[start[some] + low], ranked[start[some] + np.ceil(place).astype(np.int64)]
        answer = np.full(size, np.nan)
        answer[some] = below + (above - below) * (place - low)
        found.append(answer)
    return found


def named_percentiles(what: str, groups: Codes, size: int, values: Floats) -> dict[str, pa.Array]:
    three = percentiles(groups, size, values)
    return {f"{what}_{name}": nullable(found) for name, found in zip(("p50", "p95", "p99"), three, strict=True)}


def nullable(values: Floats) -> pa.Array:
    return pa.array(values, pa.float64(), mask=np.isnan(values))


def rows(schema: pa.Schema, count: int, columns: dict[str, object]) -> pa.Table:
    """A table of so many rows; a column may also be one value for all of them."""
    made = []
    for field in schema:
        value = columns[field.name]
        if isinstance(value, pa.Array | pa.ChunkedArray):
            made.append(value.cast(field.type))
        elif isinstance(value, np.ndarray | list):
            made.append(_array(value, field.type))
        else:
            made.append(pa.repeat(pa.scalar(value, field.type), count))
    return pa.table(made, schema=schema)


def _array(values: Sequence[object] | npt.NDArray[np.generic], kind: pa.DataType) -> pa.Array:
    if pa.types.is_timestamp(kind):
        return pa.array(values, pa.int64()).cast(kind)
    return pa.array(values, kind)
