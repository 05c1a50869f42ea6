"""Definitions: what users put into a store under a name to say what may happen to messages."""

from __future__ import annotations

import functools
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from tampu.model.patterns import Pattern

if TYPE_CHECKING:
    from tampu.model.message import Message

Compatibility = Literal["none", "backward", "forward", "full"]


class Definition(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What all definitions have."""

    name: str
    version: int = 0
    """1, 2, …: set by the store, one more with each change."""


class Schema(Definition, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A JSON Schema that payloads must match."""

    schema: dict[str, Any]
    queues: tuple[str, ...] = ()
    """Patterns of queue names, such as ``orders`` or ``shop.*``; empty: all queues."""
    types: tuple[str, ...] = ()
    """Patterns of message types, such as ``order.*``; empty: all types."""
    compatibility: Compatibility = "none"
    """What a new version must be able to do: ``backward`` accepts all that the old one accepted, ``forward`` accepts
    nothing that the old one refused, ``full`` both."""

    def applies_to(self, queue: str) -> bool:
        return matches(self.queues, queue)


def matches(texts: tuple[str, ...], name: str) -> bool:
    """True if one of the patterns matches the name, or there is none."""
    return not texts or any(_pattern(text).matches(name) for text in texts)


_pattern = functools.lru_cache(4096)(Pattern)


Trigger = Literal["published", "completed", "failed", "dead", "expired", "reviewed"]


class Changes(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What the action ``set`` changes. Labels and headers are added to those of the message."""

    labels: dict[str, str] | None = None
    headers: dict[str, str] | None = None
    priority: int | None = None
    delay: float | str | None = None
    """Seconds from the publish, or such as ``5m``."""
    deadline: float | str | None = None
    """Seconds from the publish, or such as ``4h``."""


class Reply(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A new message, for the action ``publish``."""

    queue: str
    payload: Any = None
    expression: str | None = None
    """The payload as a CEL expression over ``message``, in place of ``payload``."""
    type: str | None = None
    labels: dict[str, str] | None = None


class Escalation(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    priority: int = 9
    notify: str | None = None
    """A queue that gets a message about it."""


class Webhook(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Where to send a POST with JSON."""

    url: str
    headers: dict[str, str] = {}


class Action(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """One thing that a rule does. Exactly one field is set."""

    route: str | None = None
    """Put the message into this queue instead."""
    copy: str | None = None
    """Put a copy into this queue."""
    set: Changes | None = None
    transform: str | None = None
    """A CEL expression over ``message``: its value is the new payload."""
    escalate: Escalation | None = None
    archive: bool = False
    """End the message without delivery; it is kept as others that have ended."""
    publish: Reply | None = None
    webhook: Webhook | None = None
    """Send the message to a url."""

    @property
    def expression(self) -> str | None:
        """The CEL expression that it evaluates, if it does."""
        return self.publish.expression if self.publish is not None else self.transform


class Rule(Definition, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What happens to a message for which an expression is true."""

    when: str = "true"
    """A CEL expression over ``message``."""
    actions: tuple[Action, ...]
    trigger: Trigger = "published"
    queues: tuple[str, ...] = ()
    """Patterns of queue names; empty: all queues."""
    types: tuple[str, ...] = ()
    """Patterns of message types; empty: all types."""
    order: int = 0
    """Rules run by their order, then by name. The first that matches is the last, unless it has ``go_on``."""
    go_on: bool = msgspec.field(default=False, name="continue")
    """Rules after this one are tried too."""
    paused: bool = False

    def applies_to(self, queue: str) -> bool:
        return not self.paused and matches(self.queues, queue)


class RuleTest(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a rule would do to a message."""

    rule: str
    matched: bool
    why: str
    """The expression with the values that it used, or why the rule is not for this message."""
    would: list[str] = []
    """What would happen, in words."""
    error: str | None = None


Measure = Literal["dead", "oldest", "stuck", "failed", "lag"]


class Alert(Definition, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """When to warn. It fires for each queue by itself, or for each follower if the measure is ``lag``."""

    measure: Measure
    """``dead``: dead letters more than there were, ``within``. ``oldest``: seconds that the oldest ready message waits.
    ``stuck``: seconds for which nothing has moved in a queue with leased messages. ``failed``: share of attempts that
    failed ``within``, from 0 to 1. ``lag``: seconds for which a follower that is behind has not moved."""
    above: float
    """It fires when the measure is more than this."""
    clear: float | None = None
    """It ends when the measure is at most this; None: at most ``above``."""
    lasting: float | str = 0.0
    """The measure must be above for this long: seconds, or such as ``5m``."""
    within: float | str = "1h"
    """For ``dead`` and ``failed``."""
    queues: tuple[str, ...] = ()
    """Patterns of queue names; empty: all queues."""
    notify: str | None = None
    """A queue that gets a message when the alert fires or ends."""
    webhook: Webhook | None = None
    """A url that gets the same."""
    paused: bool = False

    def applies_to(self, queue: str) -> bool:
        return matches(self.queues, queue)


class Firing(msgspec.Struct, frozen=True):
    """An alert that fires."""

    alert: str
    target: str
    """The queue, or the name of the follower."""
    since: datetime
    value: float
    """The measure when it began."""


class Subscription(Definition, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A queue of its own, ``queue@subscriber``, that gets what is published to a broadcast queue."""

    queue: str
    subscriber: str
    filter: str | None = None
    """A CEL expression over ``message``: only messages for which it is true; None: all."""
    labels: dict[str, str] = {}
    """For people: who owns it, what it is for."""
    start: str | None = None
    """``beginning`` or a time: it also gets what was published since then; None: only what is published from now on."""

    @property
    def own_queue(self) -> str:
        """The queue to claim from."""
        return f"{self.queue}@{self.subscriber}"

    def applies_to(self, queue: str) -> bool:
        return self.queue == queue


class Hold(Definition, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A legal hold: messages that match all of its conditions are neither erased nor purged."""

    reason: str
    """Why, for people."""
    queues: tuple[str, ...] = ()
    """Patterns of queue names; empty: all queues."""
    labels: dict[str, str] = {}
    key: str | None = None
    correlation_id: str | None = None

    def applies_to(self, queue: str) -> bool:
        return matches(self.queues, queue)

    @property
    def whole_queues(self) -> bool:
        """True if it covers every message of its queues."""
        return not self.labels and self.key is None and self.correlation_id is None

    def covers(self, message: Message) -> bool:
        return (
            self.applies_to(message.queue)
            and self.key in (None, message.key)
            and self.correlation_id in (None, message.correlation_id)
            and all(message.labels.get(name) == value for name, value in self.labels.items())
        )
