"""Erasure: whose messages are removed, and the report of it."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

import msgspec

from tampu.model.message import Message


class Subject(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Whose messages: those with this label, key, correlation id, or value in their payload. Exactly one is set."""

    label: tuple[str, str] | None = None
    """(name, value)"""
    key: str | None = None
    correlation_id: str | None = None
    path: tuple[str, str] | None = None
    """(path, value), such as ``("payload.user.id", "42")``; in lists, any element counts."""

    def matches(self, message: Message) -> bool:
        if self.label is not None:
            name, value = self.label
            return message.labels.get(name) == value
        if self.path is not None:
            path, value = self.path
            return _has(_payload(message), path.split(".")[1:], value)
        if self.key is not None:
            return message.key == self.key
        return message.correlation_id == self.correlation_id


def _payload(message: Message) -> Any:
    try:
        return message.payload
    except (ValueError, RecursionError, msgspec.MsgspecError):  # it is not what its content type says
        return None


def _has(value: Any, parts: list[str], wanted: str) -> bool:
    if isinstance(value, list):
        return any(_has(one, parts, wanted) for one in value)
    if parts:
        return isinstance(value, dict) and parts[0] in value and _has(value[parts[0]], parts[1:], wanted)
    return isinstance(value, str | int | float) and not isinstance(value, bool) and str(value) == wanted


class Erasure(msgspec.Struct, frozen=True, kw_only=True):
    """What was removed of a subject, or with ``dry_run`` would be."""

    id: str
    subject: Subject
    status: Literal["running", "waiting", "done"]
    """``waiting``: some messages are leased. Their workers are asked to stop; maintenance removes them then."""
    started_at: datetime
    ended_at: datetime | None = None
    removed: dict[str, dict[str, int]] = {}
    """How many, by queue and by the state they were in."""
    ids: list[str] = []
    """Of the messages that were removed."""
    leased: list[str] = []
    """Ids of messages that workers still have."""
    held: dict[str, list[str]] = {}
    """Ids of messages that stay, by the legal hold that covers them; ``schedule NAME`` for a schedule."""
    schedules: list[str] = []
    """Names of the schedules that were deleted: what they publish would be the subject's."""
    dry_run: bool = False

    @property
    def count(self) -> int:
        return len(self.ids)
