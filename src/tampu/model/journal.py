"""The journal as readers see it: one `Transition` per change of a message, in the order of the commits."""

from __future__ import annotations

from datetime import datetime

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
    worker: str | None = None
    detail: str | None = None
    """The reason, or the first line of the error; for an expired lease `lease_end`."""
    fingerprint: str | None = None
    """Equal for errors that differ only in numbers and ids."""
    partition: str = "0"
    """The partition of the journal that ``offset`` is in."""

    @property
    def at(self) -> datetime:
        return moment(self.at_us)


class JournalPage(msgspec.Struct, frozen=True):
    transitions: list[Transition]
    position: Position
    """Pass it as ``after`` for the next page."""
    latest: Position
    """The end of the journal when the page was read; the difference is the backlog."""
