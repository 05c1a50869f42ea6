"""What the numbers of gold say about what comes next: when a backlog is gone, and how many workers each hour needs.

Plain arithmetic on plain rows, no model: a rate of the last minutes carried on, with the range that several windows
give. Whoever reads it can check it with a pencil.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Literal

import msgspec

WINDOWS = (timedelta(minutes=5), timedelta(minutes=15), timedelta(hours=1))
"""The middle one gives the forecast, all of them its range."""
AT_USE = 0.7
"""The share of its time that a worker can be busy before waits grow."""
_HOUR = 3600
_FOREVER = 10 * 365 * 86_400.0


class Minute(msgspec.Struct, frozen=True):
    """What one queue did in a minute."""

    at: datetime
    came: int
    went: int
    depth: int


class Drain(msgspec.Struct, frozen=True):
    """What becomes of a backlog if all goes on as it did."""

    outlook: Literal["empty", "drains", "grows", "stands"]
    depth: int
    in_rate: float
    out_rate: float
    seconds: float | None = None
    """Until nothing waits, when it drains."""
    soonest: float | None = None
    latest: float | None = None
    """None when one of the windows says that it never ends."""


def drain(minutes: Iterable[Minute], as_of: datetime) -> Drain:
    """When the backlog of one queue is gone. Minutes that are not there were quiet; ``as_of`` ends the last one."""
    known = sorted((m for m in minutes if m.at < as_of), key=lambda m: m.at)
    if not known:
        return Drain("empty", 0, 0.0, 0.0)
    depth = known[-1].depth
    seconds = []
    rates = []
    for window in WINDOWS:
        start = max(as_of - window, known[0].at)
        span = max(60.0, (as_of - start).total_seconds())
        inside = [m for m in known if m.at >= start]
        came, went = sum(m.came for m in inside) / span, sum(m.went for m in inside) / span
        rates.append((came, went))
        seconds.append(_until_empty(depth, came, went))
    came, went = rates[1]
    if depth <= 0:
        return Drain("empty", 0, came, went)
    here = seconds[1]
    if here is None:
        return Drain("grows" if came > went else "stands", depth, came, went)
    ends = [s for s in seconds if s is not None]
    return Drain("drains", depth, came, went, here, min(ends), max(ends) if len(ends) == len(seconds) else None)


def _until_empty(depth: int, came: float, went: float) -> float | None:
    if went <= came:
        return None
    seconds = depth / (went - came)
    return seconds if seconds < _FOREVER else None


class HourOfWeek(msgspec.Struct, frozen=True):
    """What one hour of the week brings, over the weeks that are known."""

    weekday: int
    """Monday is 0."""
    hour: int
    """In UTC."""
    weeks: int
    """How often this hour has been seen."""
    median: float
    p95: float
    run_seconds: float
    """Of work that p95 arrivals bring."""
    workers: int
    """That do it within the hour and are busy `AT_USE` of their time."""


def capacity(arrivals: Mapping[datetime, int], run_seconds_each: float) -> list[HourOfWeek]:
    """What each hour of the week needs: arrivals by hour (whole hours, UTC), and what one arrival takes to run.

    Hours between the first and the last that are not there had no arrivals. Hours of the week that never came up are
    not in the answer.
    """
    if not arrivals:
        return []
    seen: dict[tuple[int, int], list[int]] = {}
    at, last = min(arrivals), max(arrivals)
    while at <= last:
        seen.setdefault((at.weekday(), at.hour), []).append(arrivals.get(at, 0))
        at += timedelta(hours=1)
    found = []
    for (weekday, hour), counts in sorted(seen.items()):
        p95 = quantile(counts, 0.95)
        needed = p95 * run_seconds_each
        workers = math.ceil(needed / (_HOUR * AT_USE) - 1e-9)
        found.append(HourOfWeek(weekday, hour, len(counts), quantile(counts, 0.5), p95, needed, workers))
    return found


def quantile(values: Sequence[float], q: float) -> float:
    """Between the two nearest values, in proportion."""
    ordered = sorted(values)
    place = (len(ordered) - 1) * q
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)
