"""A schedule as users see it: what it publishes and when, and its last and next tick."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import msgspec

from tampu.model.message import NewMessage, decode


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule as it was when it was read."""

    name: str
    tenant: str
    queue: str
    message: NewMessage
    """The message that each tick publishes, its payload encoded."""
    cron: str | None
    every: timedelta | None
    tz: str
    """The time zone of ``cron``."""
    start: datetime | None
    end: datetime | None
    """No tick is after this time."""
    limit: int | None
    """After this many ticks it ends."""
    jitter: timedelta
    """Each tick is delayed by a random time up to this."""
    missed: str
    """What to do with ticks when no process was running: ``skip``, ``once`` or ``all(n)``."""
    paused: bool
    created_at: datetime
    fired: int
    """How many ticks have fired."""
    last: datetime | None
    """The last tick that fired; with jitter its message was published later."""
    last_id: str | None
    """The id of its message."""
    next: datetime | None
    """The next tick; None if it is paused or has ended."""
    error: str | None
    """Why the due tick cannot be published yet; it is tried again."""

    @property
    def payload(self) -> Any:
        """The payload, decoded by its content type."""
        return decode(self.message.payload, self.message.content_type or "")

    @property
    def status(self) -> str:
        """``active``, ``paused``, or ``ended`` if there are no more ticks."""
        return "paused" if self.paused else "ended" if self.next is None else "active"
