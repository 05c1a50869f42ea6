"""Filters of a query that the store can carry out by itself, so that less is read.

Spark calls a reader's ``pushFilters`` only where the session's ``spark.sql.python.filterPushdown.enabled`` is on, and
refuses a reader that has one where it is off, which is the default. It tells by the function behind the method. So a
reader here has no method of its own: an object stands in for it that shows the function of the base class, and is what
gets called where the setting is on. In a session that we did not make, filters are carried out by Spark instead.
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
        """Those that Spark must carry out itself."""
        return [one for one in filters if not self._take(one)]


def column(one: Filter) -> str | None:
    """The column a filter is about."""
    path: tuple[str, ...] = getattr(one, "attribute", ())
    return path[0] if len(path) == 1 else None


def choices(one: Filter) -> set[Any] | None:
    """The values that an equality leaves; None for any other filter."""
    if isinstance(one, EqualTo):
        return {one.value}
    if isinstance(one, In):
        return {value for value in one.value if value is not None}
    return None


class Span(msgspec.Struct):
    """Numbers from ``low`` on and below ``high``."""

    low: int | None = None
    high: int | None = None

    def take(self, one: Filter) -> bool:
        """Narrow by a comparison; False if it is none."""
        if not isinstance(one, EqualTo | GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual):
            return False
        number = _number(one.value)
        if number is None:
            return False
        after = number + 1
        if not isinstance(one, LessThan | LessThanOrEqual):
            low = after if isinstance(one, GreaterThan) else number
            self.low = low if self.low is None else max(self.low, low)
        if not isinstance(one, GreaterThan | GreaterThanOrEqual):
            high = number if isinstance(one, LessThan) else after
            self.high = high if self.high is None else min(self.high, high)
        return True


def _number(value: Any) -> int | None:
    if isinstance(value, datetime):
        return None if value.tzinfo is None else (value - _EPOCH) // _MICROSECOND
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def there(one: Filter) -> bool:
    return isinstance(one, IsNotNull)


class Scope(msgspec.Struct):
    """Of whom is read: a tenant or all (None), some queues or all (None)."""

    tenant: str | None
    queues: set[str] | None
    empty: bool = False

    def take(self, name: str, values: set[Any]) -> bool:
        """Narrow to these tenants or queues; never to a tenant that was not asked for."""
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
