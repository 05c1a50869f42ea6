"""Arguments that tools share, with what their schemas say."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from msgspec import Meta

from tampu.broker.dead.filters import DeadFilters

Queue = Annotated[str, Meta(description="Name of a queue")]
Scope = Annotated[str, Meta(description="A queue, a scope such as shop.* for shop.emails and others, or * for all")]
Id = Annotated[str, Meta(description="Id of a message", max_length=64)]
Ids = Annotated[list[str], Meta(description="Ids of messages", min_length=1, max_length=100)]
Limit = Annotated[int, Meta(description="How many to show at most", ge=1, le=50)]
Cursor = Annotated[Annotated[str, Meta(max_length=4000)] | None, Meta(description="The cursor of the page before")]
Moment = Annotated[datetime | None, Meta(description="A time with its zone, such as 2026-01-31T08:00:00Z")]
Text = Annotated[str, Meta(max_length=500)] | None
Fingerprint = Annotated[
    Annotated[str, Meta(max_length=500)] | None, Meta(description="Of the error, as dead_groups shows it")
]
Name = Annotated[str, Meta(description="Its name", max_length=128)]


def dead_filters(
    queue: str | None,
    reason: str | None,
    type: str | None,
    error: str | None,
    fingerprint: str | None,
    since: datetime | None,
    until: datetime | None,
) -> DeadFilters:
    return {
        "queue": queue, "reason": reason, "type": type, "error": error, "fingerprint": fingerprint, "since": since,
        "until": until,
    }  # fmt: skip
