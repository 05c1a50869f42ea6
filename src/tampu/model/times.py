"""Times are integer microseconds since 1970 (UTC), durations are microseconds.

Users pass ``datetime`` with a time zone, and ``timedelta`` or seconds. Only this module converts them. The random
numbers for pauses and jitter come from here too.
"""

from __future__ import annotations

import functools
import math
import random
from datetime import UTC, datetime, timedelta
from typing import Protocol

from tampu.model.errors import InvalidMessage, TampuError

SECOND = 1_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_LONGEST = 100 * 366 * 86_400 * SECOND
LATEST = 7_258_118_400 * SECOND  # the year 2200

CHANCE = random.SystemRandom()
"""Random numbers of tampu. The functions of the module `random` belong to the user's program: after `random.seed` all
its processes would get the same jitter, and the program other numbers, because threads of tampu draw in between. This
one has no state that a fork could copy, and threads may share it."""

Duration = timedelta | int | float


class Clock(Protocol):
    """Where an engine reads the time instead of its own clock: for tests."""

    def now(self) -> int:
        """Microseconds since 1970."""
        ...


def duration(value: Duration, field: str, *, zero: bool = True, error: type[TampuError] = InvalidMessage) -> int:
    """Microseconds of a ``timedelta`` or a number of seconds. Refuses negative and infinite ones."""
    if isinstance(value, timedelta):
        micros = value // _MICROSECOND
    elif isinstance(value, int | float) and not isinstance(value, bool):
        if isinstance(value, float) and not math.isfinite(value):
            raise error(f"{field} must be a finite number of seconds, not {value}", field=field)
        micros = round(value * SECOND) if abs(value) < _LONGEST else int(value) * SECOND  # a float may overflow
    else:
        raise error(
            f"{field} must be a timedelta or a number of seconds, not {type(value).__name__}",
            field=field,
            hint="for example 30, 0.5 or timedelta(minutes=5)",
        )
    if micros < 0 or (micros == 0 and not zero):
        raise error(f"{field} must be {'at least 0' if zero else 'more than 0'}, not {value}", field=field)
    if micros > _LONGEST:
        raise error(f"{field} is longer than a hundred years", field=field)
    return micros


def instant(value: datetime, field: str) -> int:
    """Microseconds since 1970 of a ``datetime`` with a time zone."""
    if not isinstance(value, datetime):
        raise InvalidMessage(f"{field} must be a datetime, not {type(value).__name__}", field=field)
    if value.tzinfo is None or value.utcoffset() is None:
        raise InvalidMessage(
            f"{field} has no time zone", field=field, hint="use datetime.now(timezone.utc) or give it a tzinfo"
        )
    micros = (value - _EPOCH) // _MICROSECOND
    if not 0 <= micros <= LATEST:
        raise InvalidMessage(f"{field} must be between the years 1970 and 2200", field=field)
    return micros


@functools.lru_cache(4096)  # in one batch most are equal
def moment(micros: int) -> datetime:
    """The ``datetime`` (UTC) of microseconds since 1970."""
    return _EPOCH + timedelta(microseconds=micros)


def moment_or_none(micros: int | None) -> datetime | None:
    return None if micros is None else moment(micros)
