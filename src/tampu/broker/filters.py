"""Which messages: the filter that listing and replaying share."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

import msgspec

from tampu.model.decoders import convert
from tampu.model.errors import InvalidMessage
from tampu.model.message import Message
from tampu.model.times import instant


class Where(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All that is given must hold."""

    type: str | None = None
    reason: str | None = None
    error: str | None = None
    """Part of the last error's text."""
    key: str | None = None
    group: str | None = None
    correlation_id: str | None = None
    labels: dict[str, str] | None = None
    created_after: datetime | None = None
    created_before: datetime | None = None
    ended_after: datetime | None = None
    ended_before: datetime | None = None

    @classmethod
    def of(cls, value: Any) -> Where:
        if value is None:
            return cls()
        if isinstance(value, cls):
            value = {f: getattr(value, f) for f in cls.__struct_fields__ if getattr(value, f) is not None}
        try:
            made = convert(value, cls)
        except msgspec.ValidationError as error:
            raise InvalidMessage(
                _why(str(error)), field="where", hint=f"fields are {', '.join(cls.__struct_fields__)}"
            ) from None
        for name in ("created_after", "created_before", "ended_after", "ended_before"):
            if getattr(made, name) is not None:
                instant(getattr(made, name), name)
        return made

    def matches(self, message: Message) -> bool:
        for name in ("type", "reason", "key", "group", "correlation_id"):
            wanted = getattr(self, name)
            if wanted is not None and getattr(message, name) != wanted:
                return False
        if self.error is not None and self.error not in (message.last_error or ""):
            return False
        if self.labels is not None and any(message.labels.get(k) != v for k, v in self.labels.items()):
            return False
        return _between(message.created_at, self.created_after, self.created_before) and _between(
            message.ended_at, self.ended_after, self.ended_before
        )


def _why(told: str) -> str:
    """What was wrong, as people say it."""
    unknown = re.search(r"unknown field `(.*)`", told)
    if unknown:
        return f"where has no field {unknown[1]}"
    place = re.search(r"`\$\.(\w+)", told)
    if place is None:
        return "where must be a mapping"
    name = place[1]
    single = "a time" if name.endswith(("_after", "_before")) else "a text"
    return f"where: {name} must be {'texts by their names' if name == 'labels' else single}"


def _between(at: datetime | None, after: datetime | None, before: datetime | None) -> bool:
    if after is None and before is None:
        return True
    return at is not None and (after is None or at >= after) and (before is None or at < before)
