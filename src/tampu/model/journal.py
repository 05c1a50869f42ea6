"""The journal as readers see it: one `Transition` per message and move, in the order of the commits."""

from __future__ import annotations

from datetime import datetime

import msgspec

from tampu.model.message import State
from tampu.model.times import moment

Position = dict[str, int]
"""Offset by partition. A page starts after it; the page's own ``position`` continues."""


def lease_end(until_us: int) -> str:
    """The detail of a transition that ends a lease which ran out: when that was. It may be noticed much later."""
    return f"lease_until={until_us}"


LEASE_END = r"^lease_until=(?P<until>\d{1,18})$"
"""What such a detail looks like."""


class Transition(msgspec.Struct, frozen=True):
    offset: int
    at_us: int
    tenant: str
    queue: str
    verb: str
    id: str
    state: State | None
    """The state after it; None when the message was removed."""
    attempt: int
    type: str | None = None
    worker: str | None = None
    detail: str | None = None
    """The reason, or the first line of the error; of a lease that ran out, `lease_end`."""
    fingerprint: str | None = None
    """Groups errors that differ only in numbers and ids."""
    partition: str = "0"
    """The part of the journal that ``offset`` counts in."""

    @property
    def at(self) -> datetime:
        return moment(self.at_us)


class JournalPage(msgspec.Struct, frozen=True):
    transitions: list[Transition]
    position: Position
    """Give it as ``after`` for the next page."""
    latest: Position
    """The end of the journal when the page was read; the difference is the backlog."""
