"""The journal as readers see it: one `Transition` per change of a message, in the order of the commits. And followers
of it, as users see them."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

import msgspec

from tampu.model.message import State
from tampu.model.times import moment

Position = dict[str, int]
"""Partition → offset. A page starts after it; pass the page's ``position`` to read on."""


def lease_end(until_us: int) -> str:
    """The detail of a transition that ends an expired lease: when it expired, which may be long before."""
    return f"lease_until={until_us}"


class Transition(msgspec.Struct, frozen=True):
    offset: int
    at_us: int
    tenant: str
    queue: str
    verb: str
    id: str
    state: State | None
    """The new state; None if the message was removed."""
    attempt: int
    type: str | None = None
    """Of a publish; of others if it was asked for."""
    worker: str | None = None
    """Who had the lease; or who asked for the cancel, free, replay or purge."""
    detail: str | None = None
    """The reason, or the first line of the error; for an expired lease `lease_end`."""
    fingerprint: str | None = None
    """Equal for errors that differ only in numbers and ids."""
    partition: str = "0"
    """The partition of the journal that ``offset`` is in."""
    correlation_id: str | None = None
    """Of its message, if it was asked for."""

    @property
    def at(self) -> datetime:
        return moment(self.at_us)


class JournalPage(msgspec.Struct, frozen=True):
    transitions: list[Transition]
    position: Position
    """Pass it as ``after`` for the next page."""
    latest: Position
    """The end of the journal when the page was read; the difference is the backlog."""


class FollowerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A follower as it was when it was read."""

    name: str
    status: Literal["active", "waiting", "parked"]
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
    handled: int = 0
    """Transitions that it has seen since it began."""
