"""What is stored of a review: a document under the id of its message.

The message itself says that it waits, and what it was published with. The document has the rest: who works on it, who
has approved, comments, the decision. It is written with its version, so of several decisions at once one is stored.
There is no document before somebody has done something.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from tampu.engines.port import Document, PutDocument
from tampu.model.decoders import from_json
from tampu.model.message import Message, State
from tampu.model.reviews import HOLD, Asked, Comment, Decision, ReviewPattern, ReviewRecord, Section
from tampu.model.times import moment

KIND = "review"


class StoredReview(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    opened_us: int
    asked: Asked
    round: int = 1
    """Which review of the message this is: a task may ask for another one."""
    hold: str = HOLD
    """Why its message is held: another reason for each review of a message."""
    reason: str | None = None
    roles: tuple[str, ...] | None = None
    """None: those of the pattern."""
    assignee: str | None = None
    votes: tuple[Decision, ...] = ()
    comments: tuple[Comment, ...] = ()
    reminded: bool = False
    escalated: bool = False
    decision: Decision | None = None
    body: bytes | None = None
    """The new body of the approved message, on engines whose units become visible part by part."""


_read = from_json(StoredReview).decode


class Found(NamedTuple):
    """A review, read whole."""

    id: str
    message: Message | None
    """None: it was removed."""
    stored: StoredReview
    version: int
    """Of the document; 0: there is none yet."""
    pattern: ReviewPattern

    @property
    def open(self) -> bool:
        return self.message is not None and self.message.state is State.HELD and self.stored.decision is None

    @property
    def roles(self) -> tuple[str, ...]:
        return self.pattern.roles if self.stored.roles is None else self.stored.roles


def read(document: Document | None, message: Message | None) -> StoredReview | None:
    """What is known of a review; None if the message has none."""
    if document is not None:
        return _read(document.value)
    review = None if message is None else message.review
    if message is None or review is None or (review.pattern is None and review.inline is None):
        return None
    wanted = Asked(review.pattern, review.version, review.parameters, review.inline)
    return StoredReview(opened_us=message.created_us, asked=wanted, decision=review.decision)


def saving(tenant: str, found: Found, changed: StoredReview) -> PutDocument:
    """The call that stores a change of the review that was read."""
    return PutDocument(KIND, tenant, found.id, msgspec.json.encode(changed), found.version)


def record(found: Found, due_us: int | None, sections: tuple[Section, ...] = ()) -> ReviewRecord:
    """The review as users see it."""
    stored, pattern = found.stored, found.pattern
    state = "open" if found.open else "ended" if stored.decision is None else "decided"
    return ReviewRecord(
        id=found.id,
        queue="" if found.message is None else found.message.queue,
        state=state,  # type: ignore[arg-type]  # one of the three
        pattern=stored.asked.pattern,
        version=stored.asked.version,
        opened_at=moment(stored.opened_us),
        deadline_at=None if due_us is None else moment(stored.opened_us + due_us),
        reason=stored.reason,
        sections=sections,
        options=pattern.choices,
        fields=pattern.form,
        roles=found.roles,
        assignee=stored.assignee or pattern.assignee,
        approvals=pattern.approvals,
        votes=stored.votes,
        comments=stored.comments,
        escalated=stored.escalated,
        decision=stored.decision,
    )
