"""The times of a schedule as users give them, checked without a store."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from tampu.broker import validate
from tampu.broker.schedules import ticks
from tampu.model.errors import InvalidMessage
from tampu.model.times import Duration, duration, instant


class Times(msgspec.Struct, frozen=True):
    """The fields are those of `Terms` in verbs.py, in the same order."""

    cron: str | None
    every_us: int | None
    tz: str
    start_us: int | None
    end_us: int | None
    limit: int | None
    jitter_us: int
    missed: str
    paused: bool | None


def checked(
    cron: str | None = None,
    every: Duration | None = None,
    tz: str = "UTC",
    start: datetime | None = None,
    end: datetime | None = None,
    limit: int | None = None,
    jitter: Duration = 0,
    missed: str = "once",
    paused: bool | None = None,
) -> Times:
    """The times; raises `InvalidMessage` for what `put_schedule` refuses."""
    if (cron is None) == (every is None):
        raise InvalidMessage("give either cron or every", field="cron", hint="such as cron='*/5 * * * *'")
    ticks.checked_zone(tz)
    if every is not None and tz != "UTC":
        raise InvalidMessage("an interval has no time zone", field="tz", hint="omit tz, or use cron")
    every_us = None if every is None else duration(every, "every")
    if every_us is not None and every_us < ticks.SHORTEST_US:
        raise InvalidMessage("every must be at least a second", field="every")
    start_us = None if start is None else instant(start, "start")
    end_us = None if end is None else instant(end, "end")
    if start_us is not None and end_us is not None and end_us < start_us:
        raise InvalidMessage("end is before start", field="end")
    if cron is not None:
        cron = ticks.checked_cron(cron, tz, 0)
    return Times(
        cron,
        every_us,
        tz,
        start_us,
        end_us,
        None if limit is None else validate.whole(limit, "limit", 1, 10**15),
        duration(jitter, "jitter"),
        ticks.checked_missed(missed),
        _flag(paused, "paused"),
    )


def _flag(value: Any, field: str) -> bool | None:
    if value is not None and not isinstance(value, bool):
        raise InvalidMessage(f"{field} must be true or false", field=field)
    return value
