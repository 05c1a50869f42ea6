"""Reviews: what a person is asked about a message, and what was decided."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any, Literal

import msgspec

from tampu.model.decoders import from_json
from tampu.model.definitions import Definition, matches

Outcome = Literal["approve", "refuse"]
Scalar = str | int | float | bool | None
HOLD = "review"
"""The reason for which a message with a review is held. Further reviews of the message have their number after it."""


def is_held_for_review(reason: str | None) -> bool:
    return reason is not None and (reason == HOLD or reason.startswith(f"{HOLD} "))


class Section(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A part of what the reviewer sees. In a pattern, ``text`` is a template; in a review it is plain text."""

    text: str
    title: str = ""


class ReviewOption(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """One of the possible decisions."""

    name: str
    outcome: Outcome = "approve"
    """``approve``: the message continues; ``refuse``: it is dead."""
    title: str = ""


class ReviewField(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A field of the form that the reviewer fills in."""

    type: Literal["text", "integer", "number", "boolean", "date", "choice"] = "text"
    title: str = ""
    required: bool = False
    """An option that approves needs it."""
    choices: tuple[str, ...] = ()
    minimum: float | None = None
    """The least number, or the least number of characters."""
    maximum: float | None = None


class ReviewEscalation(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Who may decide if nobody has done so for some time."""

    after: float | str
    """Seconds since the review began, or such as ``2h``."""
    roles: tuple[str, ...] = ()
    assignee: str | None = None


class ReviewPattern(Definition, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What reviewers see and decide, who they are, and how long they have."""

    context: tuple[Section | str, ...] = ()
    """What the reviewer sees: templates such as ``{{ message.payload.total }}``."""
    options: tuple[ReviewOption | str, ...] = ("approve", "refuse")
    """``refuse`` refuses; other names approve, unless they say otherwise."""
    fields: dict[str, ReviewField | str] = msgspec.field(default_factory=dict)
    """The form, by name; a text is the type of the field."""
    roles: tuple[str, ...] = ()
    """Who may decide; empty: everybody who has the permission."""
    assignee: str | None = None
    approvals: int = 1
    """How many persons must approve."""
    parameters: dict[str, Scalar] = msgspec.field(default_factory=dict)
    """Values that a message may replace, with their defaults: ``{{ parameters.limit }}`` in a template."""
    deadline: float | str | None = None
    """Seconds since the review began, or such as ``4h``."""
    on_timeout: str = "refuse"
    """The option that is taken at the deadline."""
    remind: float | str | None = None
    """When to remind, if nobody has decided; as ``deadline``."""
    escalate: ReviewEscalation | None = None
    notify: str | None = None
    """A queue that gets a message when a reviewer is reminded, at an escalation and at the deadline."""
    queues: tuple[str, ...] = ()
    """Patterns of the queues whose messages may use it; empty: all queues."""

    def applies_to(self, queue: str) -> bool:
        return matches(self.queues, queue)

    @property
    def choices(self) -> tuple[ReviewOption, ...]:
        """The options, in full."""
        return tuple(
            ReviewOption(one, "refuse" if one == "refuse" else "approve") if isinstance(one, str) else one
            for one in self.options
        )

    @property
    def form(self) -> dict[str, ReviewField]:
        """The fields, in full. `tampu.broker.policies.reviews.patterns` has checked them."""
        return {
            name: ReviewField(one) if isinstance(one, str) else one  # type: ignore[arg-type]  # checked when it was put
            for name, one in self.fields.items()
        }


class Asked(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The review that a message needs: a pattern, or what a pattern would say."""

    pattern: str | None = None
    version: int | None = None
    """None: the newest when the message is published."""
    parameters: dict[str, Scalar] = {}
    inline: ReviewPattern | None = None


class Decision(msgspec.Struct, frozen=True, omit_defaults=True):
    """What somebody has decided."""

    option: str
    outcome: Outcome
    by: str
    at: datetime
    reason: str | None = None
    fields: dict[str, Any] = {}


class Comment(msgspec.Struct, frozen=True):
    by: str
    at: datetime
    text: str


class MessageReview(msgspec.Struct, frozen=True, omit_defaults=True):
    """The review that a message carries. Workers find the ``decision`` in it."""

    pattern: str | None = None
    version: int | None = None
    parameters: dict[str, Scalar] = {}
    inline: ReviewPattern | None = None
    decision: Decision | None = None


read_message_review = from_json(MessageReview).decode


class ReviewRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A review as it was when it was read."""

    id: str
    """The id of its message."""
    queue: str
    state: Literal["open", "decided", "ended"]
    """``ended``: the message was cancelled, freed or has expired before anybody decided."""
    pattern: str | None = None
    version: int | None = None
    opened_at: datetime
    deadline_at: datetime | None = None
    reason: str | None = None
    """Why a task asked for it."""
    sections: tuple[Section, ...] = ()
    """What the reviewer sees, as plain text; only `reviews.get` fills it."""
    options: tuple[ReviewOption, ...] = ()
    fields: dict[str, ReviewField] = {}
    roles: tuple[str, ...] = ()
    assignee: str | None = None
    approvals: int = 1
    votes: tuple[Decision, ...] = ()
    comments: tuple[Comment, ...] = ()
    escalated: bool = False
    decision: Decision | None = None


class ReviewPage(msgspec.Struct, frozen=True):
    """A page of reviews. Pass ``cursor`` as ``after`` to get the next page; None: this is the last one."""

    reviews: list[ReviewRecord]
    cursor: str | None = None

    def __iter__(self) -> Iterator[ReviewRecord]:
        return iter(self.reviews)

    def __len__(self) -> int:
        return len(self.reviews)


class ReviewPreview(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a reviewer would see."""

    sections: tuple[Section, ...]
    options: tuple[ReviewOption, ...]
    fields: dict[str, ReviewField] = {}
