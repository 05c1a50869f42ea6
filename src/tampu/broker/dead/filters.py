"""`DeadFilter`: which dead letters, over all queues of a tenant. And the fingerprint of their errors."""

from __future__ import annotations

from datetime import datetime
from typing import Any, TypedDict

import msgspec

from tampu.broker import validate
from tampu.engines.encoding import fingerprint
from tampu.engines.rules import first_line
from tampu.model.config import covers, is_pattern
from tampu.model.errors import InvalidMessage
from tampu.model.message import Message
from tampu.model.patterns import Pattern
from tampu.model.times import instant

_MOST_TEXT = 500


class DeadFilters(TypedDict, total=False):
    """Which dead letters, as users pass it: those that have all that is given."""

    queue: str | None
    scope: str | None
    """``shop`` is for all queues whose names begin with ``shop.``."""
    reason: str | None
    type: str | None
    error: str | None
    """A part of the text of the last error."""
    fingerprint: str | None
    """Of the error, see `error_of`."""
    since: datetime | None
    until: datetime | None
    """When it died: since this time, before that time."""


def error_of(message: Message) -> str:
    """What the journal says of the death: the first line of the error, or else the reason."""
    return first_line(message.last_error) or message.reason or ""


def fingerprint_of(message: Message) -> str:
    return fingerprint(error_of(message))


class DeadFilter(msgspec.Struct, frozen=True, omit_defaults=True):
    """A dead letter matches if it has all the values that are given."""

    queue: str | None = None
    """A queue, or a scope such as ``shop.*``."""
    reason: str | None = None
    type: str | None = None
    error: str | None = None
    """A part of the text of the last error."""
    fingerprint: str | None = None
    since_us: int | None = None
    until_us: int | None = None
    """When it died: since this time, before that time."""
    within: tuple[str, ...] = ("*",)
    """Patterns of the queues that the caller may see or change."""

    @classmethod
    def of(cls, filters: DeadFilters) -> DeadFilter:
        """From what users pass, checked."""
        given: dict[str, Any] = {name: value for name, value in filters.items() if value is not None}
        unknown = given.keys() - DeadFilters.__annotations__.keys()
        if unknown:
            names = ", ".join(DeadFilters.__annotations__)
            raise InvalidMessage(f"dead letters have no filter {min(unknown)!r:.60}", hint=f"filters are {names}")
        queue, scope = given.pop("queue", None), given.pop("scope", None)
        if queue is not None and scope is not None:
            raise InvalidMessage("give a queue or a scope, not both", field="scope")
        if scope is not None:
            whole = isinstance(scope, str) and (scope == "*" or scope.endswith(".*"))
            queue = scope if whole else f"{scope}.*"
        if queue is not None:
            validate.queue_or_scope(queue)
        times: dict[str, Any] = {
            f"{name}_us": instant(given.pop(name), name) for name in ("since", "until") if name in given
        }
        for name, value in given.items():
            if not (isinstance(value, str) and 0 < len(value) <= _MOST_TEXT):
                raise InvalidMessage(f"{name} must be a text of at most {_MOST_TEXT} characters", field=name)
        return cls(queue=queue, **times, **given)

    def before(self, us: int) -> DeadFilter:
        """Of these, those that died before this time."""
        until = us if self.until_us is None else min(us, self.until_us)
        return msgspec.structs.replace(self, until_us=until)

    @property
    def target(self) -> str:
        """The queues it is about, for the audit trail."""
        return self.queue or "*"

    def takes_queue(self, name: str) -> bool:
        of_filter = self.queue is None or covers(self.queue, name)
        return of_filter and any(Pattern(text).matches(name) for text in self.within)

    def matches(self, message: Message) -> bool:
        died = message.ended_us or 0
        if (self.since_us is not None and died < self.since_us) or self.is_past(message):
            return False
        if self.reason is not None and message.reason != self.reason:
            return False
        if self.type is not None and message.body.type != self.type:
            return False
        if self.error is not None and self.error not in (message.last_error or ""):
            return False
        return self.fingerprint is None or fingerprint_of(message) == self.fingerprint

    def is_past(self, message: Message) -> bool:
        """It died too late: so did all that come after it in the index."""
        return self.until_us is not None and (message.ended_us or 0) >= self.until_us


def one_queue(wanted: DeadFilter) -> str | None:
    """The queue, if the filter is for one."""
    return None if wanted.queue is None or is_pattern(wanted.queue) else wanted.queue
