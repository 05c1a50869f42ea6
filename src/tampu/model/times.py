"""Times are integer microseconds since 1970 (UTC), durations are microseconds.

Users pass ``datetime`` with a time zone, and ``timedelta``, seconds or texts such as ``5m``. Only this module converts
them. The random numbers for pauses and jitter come from here too.
"""

from __future__ import annotations

import functools
import math
import random
import re
from datetime import UTC, datetime, timedelta
from typing import Protocol

from tampu.model.errors import InvalidMessage, TampuError

SECOND = 1_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_LONGEST = 100 * 366 * 86_400 * SECOND
LATEST = 7_258_118_400 * SECOND  # the year 2200

_NUMBER = re.compile(r"-?\d+(\.\d+)?\Z")
_PART = re.compile(r"(\d+(?:\.\d+)?)(us|ms|s|m|h|d|w)")
_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_HINT = "seconds, or with units: 30s, 500ms, 5m, 1h30m, 2d"

CHANCE = random.SystemRandom()
"""Random numbers of tampu. The functions of the module `random` belong to the user's program: after `random.seed` all
its processes would get the same jitter, and the program other numbers, because threads of tampu draw in between. This
one has no state that a fork could copy, and threads may share it."""

Seconds = timedelta | int | float
"""A duration in a body over HTTP: JSON writes a ``timedelta`` as ISO 8601."""
Duration = Seconds | str
"""A duration as users pass it: also ``5m``, ``1h30m``, ``500ms``."""


class Clock(Protocol):
    """Where an engine reads the time instead of its own clock: for tests."""

    def now(self) -> int:
        """Microseconds since 1970."""
        ...


def duration(value: Duration, field: str, *, zero: bool = True, error: type[TampuError] = InvalidMessage) -> int:
    """Microseconds of a ``timedelta``, seconds or a text such as ``5m``. Refuses negative and infinite ones."""
    if isinstance(value, str):
        value = seconds_of(value, field, error)
    if isinstance(value, timedelta):
        micros = value // _MICROSECOND
    elif isinstance(value, int | float) and not isinstance(value, bool):
        if isinstance(value, float) and not math.isfinite(value):
            raise error(f"{field} must be a finite number of seconds, not {value}", field=field)
        micros = round(value * SECOND) if abs(value) < _LONGEST else int(value) * SECOND  # a float may overflow
    else:
        raise error(
            f"{field} must be a timedelta, a number of seconds or a text, not {type(value).__name__}",
            field=field,
            hint='for example 30, 0.5, "5m" or timedelta(minutes=5)',
        )
    if micros < 0 or (micros == 0 and not zero):
        raise error(f"{field} must be {'at least 0' if zero else 'more than 0'}, not {value}", field=field)
    if micros > _LONGEST:
        raise error(f"{field} is longer than a hundred years", field=field)
    return micros


def seconds_of(text: str, field: str, error: type[TampuError] = InvalidMessage) -> float:
    """Seconds, from ``90``, ``1.5``, ``30s`` or ``1h30m``."""
    text = text.strip().lower()
    if _NUMBER.match(text):
        return float(text)
    parts = _PART.findall(text)
    if not parts or "".join(n + unit for n, unit in parts) != text:
        raise error(f"{field} {text!r:.60} is not a duration", field=field, hint=_HINT)
    return float(sum(float(n) * _SECONDS[unit] for n, unit in parts))


def numeric(value: Duration | None, field: str) -> Seconds | None:
    """A text as seconds; other durations as they are."""
    return seconds_of(value, field) if isinstance(value, str) else value


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
