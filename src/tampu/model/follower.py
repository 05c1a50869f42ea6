"""A follower as users see it: how far it is, and why it does not go on."""

from __future__ import annotations

from datetime import datetime

import msgspec

from tampu.model.journal import Position


class FollowerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A follower as it was when it was read."""

    name: str
    status: str
    """``active``, ``waiting`` for its next try after an error, or ``parked`` after many errors until it is resumed."""
    behind: int
    """Transitions that it has not seen."""
    position: Position
    """Up to where it has seen the journal."""
    moved_at: datetime
    """When the position last changed."""
    error: str | None = None
    """Why it waits or is parked."""
    attempts: int = 0
    """How often it failed at its position."""
    retry_at: datetime | None = None
    """When it is tried again; None if it is active or parked."""
