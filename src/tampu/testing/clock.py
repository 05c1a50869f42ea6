"""A clock that only the test moves; pass it to `tampu.open` as ``clock``."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from tampu.model.times import SECOND, Duration, instant, moment, numeric

START = datetime(2026, 1, 1, tzinfo=UTC)


class FakeClock:
    """Stands still until a test moves it. It starts at the beginning of 2026, or at ``start``."""

    def __init__(self, start: datetime = START) -> None:
        self._now = instant(start, "start")

    def now(self) -> int:
        return self._now

    def advance(self, by: Duration) -> None:
        """Move forward by a ``timedelta``, seconds or ``5m``; back if negative."""
        seconds = numeric(by, "by") or 0
        self._now += round((seconds.total_seconds() if isinstance(seconds, timedelta) else seconds) * SECOND)

    def move_to(self, time: datetime) -> None:
        """Set the time, which must have a time zone."""
        self._now = instant(time, "time")

    @property
    def time(self) -> datetime:
        return moment(self._now)
