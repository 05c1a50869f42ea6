"""The story of related messages: what was published because of what, what happened to it, and how long it took."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import msgspec

from tampu.model.states import State


class TraceEvent(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something that happened to a message."""

    at: datetime
    what: str
    """``published``, ``nack``, ``reject``, ``lease_expired``, ``reviewed``, ``claimed``, or the state it has since."""
    after: float = 0.0
    """Seconds since the event before."""
    attempt: int | None = None
    worker: str | None = None
    """The worker, or the person who decided."""
    detail: str | None = None
    """The error, the reason, or the decision."""


class TraceMessage(msgspec.Struct, frozen=True, omit_defaults=True):
    """A message of the story, without its payload."""

    id: str
    queue: str
    type: str
    state: State
    attempts: int
    created_at: datetime
    events: list[TraceEvent]
    """In order. The last one is what the message does now."""
    cause: str | None = None
    """The id of the message of this story that it was published because of."""
    reason: str | None = None
    worker: str | None = None
    ended_at: datetime | None = None

    @property
    def duration(self) -> timedelta | None:
        """From its publish to its end; None while it has not ended."""
        return None if self.ended_at is None else self.ended_at - self.created_at


class Trace(msgspec.Struct, frozen=True):
    """The messages of a story in the order in which they were published. Iterate it like a list."""

    correlation_id: str
    messages: list[TraceMessage]
    complete: bool = True
    """False if there are more messages than were asked for."""

    @property
    def started_at(self) -> datetime:
        return self.messages[0].created_at

    @property
    def ended_at(self) -> datetime | None:
        """When the last message ended; None while one has not."""
        ends = [message.ended_at for message in self.messages]
        return None if None in ends else max(end for end in ends if end is not None)

    @property
    def duration(self) -> timedelta | None:
        return None if self.ended_at is None else self.ended_at - self.started_at

    def caused_by(self, id: str | None) -> list[TraceMessage]:
        """What was published because of a message; None: the messages that the story began with."""
        return [message for message in self.messages if message.cause == id]

    def __iter__(self) -> Any:
        return iter(self.messages)

    def __len__(self) -> int:
        return len(self.messages)
