"""Dead letters across queues, as users see them: groups of equal errors, and replays."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Literal

import msgspec

DeadAction = Literal["replay", "purge"]
DeadStatus = Literal["preview", "running", "done", "cancelled", "undoing", "undone"]


class DeadGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Dead letters with the same error fingerprint."""

    fingerprint: str
    """Equal for errors that differ only in numbers, ids and quoted values; the journal and the lake have the same."""
    error: str
    """The first line of the error of the sample, or its reason if it has no error."""
    count: int
    first_at: datetime
    last_at: datetime
    """When the first and the last of them died."""
    queues: dict[str, int]
    """How many there are, by queue."""
    reasons: dict[str, int]
    sample: str
    """The id of the one that died last."""


class DeadGroups(msgspec.Struct, frozen=True):
    """Groups of some dead letters, the largest first. With a ``cursor`` there are more: pass it as ``after``."""

    groups: list[DeadGroup]
    read: int
    """How many dead letters were read for it."""
    cursor: str | None = None

    def __iter__(self) -> Iterator[DeadGroup]:
        return iter(self.groups)

    def __len__(self) -> int:
        return len(self.groups)


class DeadJob(msgspec.Struct, frozen=True, kw_only=True):
    """A replay or purge of dead letters: what it has done, or as a ``preview`` would do."""

    action: DeadAction
    status: DeadStatus
    count: int
    """Messages that were replayed or removed so far; of a preview: that match."""
    queues: dict[str, int]
    """The same, by queue."""
    sample: list[str]
    """Ids of the first of them."""
    complete: bool = True
    """False: a preview or purge that ended early because there are very many dead letters to look at."""
    id: str | None = None
    """Of a replay: to look at it again, to cancel or undo it."""
    refused: int = 0
    """Messages that were no longer dead when their turn came."""
    undone: int = 0
    """Messages that `undo` has made dead again."""
    rate: float | None = None
    by: str | None = None
    created_at: datetime | None = None
    undo_until: datetime | None = None
    """Until then `undo` has something to take back, unless it was delivered."""
    cursor: str | None = None
    """Where a purge that is not complete goes on."""
