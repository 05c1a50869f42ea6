"""Who did what: the audit trail as users see it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec


class Actor(msgspec.Struct, frozen=True):
    """Who acts: a person, a key, or the user of the operating system."""

    name: str
    request_id: str | None = None
    """The request of the server in which it was done."""


class AuditRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One act that was not a plain publish, claim or settle."""

    id: str
    at: datetime
    actor: str
    action: str
    """What was done, such as ``schema.put`` or ``queue.purge``."""
    target: str
    """The name of what it was done to."""
    request_id: str | None = None
    before: Any = None
    """What it was before, where something was changed; None if it was new."""
    after: Any = None
    """What it is since; None if it was removed."""


class AuditPage(msgspec.Struct, frozen=True):
    """Records in the order in which they were made. Iterate it like a list."""

    records: list[AuditRecord]
    cursor: str | None = None
    """Pass it as ``after`` for the next page; None at the end."""

    def __iter__(self) -> Any:
        return iter(self.records)

    def __len__(self) -> int:
        return len(self.records)
