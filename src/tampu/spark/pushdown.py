"""Filters that the store can apply itself, so that less is read.

Spark calls a reader's ``pushFilters`` only if the session's ``spark.sql.python.filterPushdown.enabled`` is on. If it is
off, which is the default, Spark refuses a reader that overrides the method; it checks the function behind the method.
So our readers do not override it. They set an object in its place that has the function of the base class as
``__func__``, and that Spark calls if the setting is on. In other sessions, Spark applies the filters itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class PushFilters:
    def __init__(self, take: Callable[[Filter], bool]) -> None:
        self.__func__ = DataSourceReader.pushFilters
        self._take = take

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        """The filters that Spark must apply itself."""
        return [filter_ for filter_ in filters if not self._take(filter_)]


def column(filter_: Filter) -> str | None:
    """The column a filter is about."""
    path: tuple[str, ...] = getattr(filter_, "attribute", ())
    return path[0] if len(path) == 1 else None


def choices(filter_: Filter) -> set[Any] | None:
    """The values that an equality or IN filter allows; None for any other filter."""
    if isinstance(filter_, EqualTo):
        return {filter_.value}
    if isinstance(filter_, In):
        return {value for value in filter_.value if value is not None}
    return None


class Span(msgspec.Struct):
    """Numbers from ``low`` on and below ``high``."""

    low: int | None = None
    high: int | None = None

    def take(self, filter_: Filter) -> bool:
        """Narrow by a comparison. False if the filter is not one."""
        if not isinstance(filter_, EqualTo | GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual):
            return False
        number = _number(filter_.value)
        if number is None:
            return False
        after = number + 1
        if not isinstance(filter_, LessThan | LessThanOrEqual):
            low = after if isinstance(filter_, GreaterThan) else number
            self.low = low if self.low is None else max(self.low, low)
        if not isinstance(filter_, GreaterThan | GreaterThanOrEqual):
            high = number if isinstance(filter_, LessThan) else after
            self.high = high if self.high is None else min(self.high, high)
        return True


def _number(value: Any) -> int | None:
    if isinstance(value, datetime):
        return None if value.tzinfo is None else (value - _EPOCH) // _MICROSECOND
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def is_not_null(filter_: Filter) -> bool:
    return isinstance(filter_, IsNotNull)


class Scope(msgspec.Struct):
    """What is read: one tenant or all (None), some queues or all (None)."""

    tenant: str | None
    queues: set[str] | None
    empty: bool = False

    def take(self, name: str, values: set[Any]) -> bool:
        """Narrow to these tenants or queues. A filter never adds a tenant."""
        if name == "queue":
            self.queues = values if self.queues is None else self.queues & values
        elif self.tenant is not None:
            self.empty |= self.tenant not in values
        elif len(values) == 1:
            (self.tenant,) = values
        else:
            return False
        return True

    @property
    def nothing(self) -> bool:
        return self.empty or self.queues == set()
