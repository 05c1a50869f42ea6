"""`Where`: the filter of messages for `messages` and `replay`."""

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
    """A message matches if it has all the values that are given."""

    type: str | None = None
    reason: str | None = None
    error: str | None = None
    """A part of the text of the last error."""
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


def _why(error: str) -> str:
    """An error of msgspec in plain words."""
    unknown = re.search(r"unknown field `(.*)`", error)
    if unknown:
        return f"where has no field {unknown[1]}"
    field = re.search(r"`\$\.(\w+)", error)
    if field is None:
        return "where must be a mapping"
    name = field[1]
    kind = "a time" if name.endswith(("_after", "_before")) else "a text"
    return f"where: {name} must be {'a mapping of texts' if name == 'labels' else kind}"


def _between(at: datetime | None, after: datetime | None, before: datetime | None) -> bool:
    if after is None and before is None:
        return True
    return at is not None and (after is None or at >= after) and (before is None or at < before)
