"""Bodies of the routes of reviews."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from tampu.wire.bodies import RequestBody
from tampu.wire.media import Form


class ClaimReview(RequestBody):
    by: str | None = None
    """The person; without it, the name of the key. Another name needs the permission operate."""


class DecideReview(RequestBody):
    option: str
    by: str | None = None
    reason: str | None = None
    fields: Annotated[dict[str, Any], Meta(max_length=50)] = msgspec.field(default_factory=dict)
    payload: Any = None
    """Replaces the payload of the message, if it is approved."""


class CommentReview(RequestBody):
    text: str
    by: str | None = None


class ReassignReview(RequestBody):
    to: str | None = None
    roles: Annotated[list[str], Meta(max_length=20)] | None = None
    by: str | None = None


class AskReview(RequestBody):
    """A worker asks for a review of the message that it has leased."""

    id: str
    receipt: str
    review: str | dict[str, Any]
    """The name of a pattern, or a review."""
    reason: str | None = None


class AskedReview(msgspec.Struct):
    id: str
    """The message that is held now."""


class PreviewReview(RequestBody):
    pattern: str | dict[str, Any]
    """The name of a pattern, or what a pattern would say."""
    payload: Any = None
    queue: str = "preview"
    type: str | None = None
    labels: dict[str, str] | None = None
    headers: dict[str, str] | None = None
    parameters: dict[str, Any] | None = None


CLAIM = Form(ClaimReview)
DECIDE = Form(DecideReview, has_any=True)
COMMENT = Form(CommentReview)
REASSIGN = Form(ReassignReview)
ASK = Form(AskReview, has_any=True)
PREVIEW = Form(PreviewReview, has_any=True)
