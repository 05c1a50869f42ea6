"""Dead letters on the wire: which ones, and what is done with them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import msgspec

from tampu.model.dead import DeadJob
from tampu.wire.bodies import RequestBody
from tampu.wire.media import Form

_Ids = Annotated[list[str], msgspec.Meta(min_length=1, max_length=1000)]


class DeadSelection(RequestBody, kw_only=True):
    """Ids, or filters: dead letters that have all that is given. ``queue`` is a queue, a scope or ``*``."""

    ids: _Ids | None = None
    queue: str | None = None
    scope: str | None = None
    reason: str | None = None
    type: str | None = None
    error: str | None = None
    """A part of the text of the last error."""
    fingerprint: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    dry_run: bool = False
    """Only say which they are."""


class DeadReplayBody(DeadSelection, kw_only=True):
    rate: str | float | None = None
    """Such as ``50/s``; without it, as fast as the store can."""
    limit: int | None = None


class DeadPurgeBody(DeadSelection, kw_only=True):
    after: str | None = None
    """The ``cursor`` of an answer that was not ``complete``."""


class DeadJobs(msgspec.Struct):
    replays: list[DeadJob]


REPLAY = Form(DeadReplayBody)
PURGE = Form(DeadPurgeBody)
FILTERS = ("queue", "scope", "reason", "type", "error", "fingerprint", "since", "until")
