"""A schedule as users see it: what is published, when, how often it was, and when it will be next."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import msgspec

from tampu.model.message import NewMessage, decode


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule as it stood when it was read."""

    name: str
    tenant: str
    queue: str
    message: NewMessage
    """What each tick publishes, its payload encoded."""
    cron: str | None
    every: timedelta | None
    tz: str
    """The zone that ``cron`` is meant in."""
    start: datetime | None
    end: datetime | None
    """The last moment that may still be a tick."""
    limit: int | None
    """So many ticks fire, then no more."""
    jitter: timedelta
    """Each tick is late by a time of its own, up to this."""
    missed: str
    """What becomes of ticks that nobody was there for: ``skip``, ``once`` or ``all(n)``."""
    paused: bool
    created_at: datetime
    fired: int
    """Ticks that were fired."""
    last: datetime | None
    """The last tick that was fired; with jitter, the message came later."""
    last_id: str | None
    """The message of that tick."""
    next: datetime | None
    """When it fires next; None when it is paused or has ended."""
    error: str | None
    """Why the tick that is due can not be published yet; it is tried again."""

    @property
    def payload(self) -> Any:
        """The payload, decoded by its content type."""
        return decode(self.message.payload, self.message.content_type or "")

    @property
    def status(self) -> str:
        """``active``, ``paused``, or ``ended`` when there is no tick to come."""
        return "paused" if self.paused else "ended" if self.next is None else "active"
