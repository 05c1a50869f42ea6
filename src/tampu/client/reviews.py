"""Reviews over HTTP: one request each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tampu.broker import validate
from tampu.broker.core import Steps
from tampu.broker.policies.reviews.decide import DecideVerbs
from tampu.broker.policies.reviews.verbs import asking
from tampu.client.request import call, reader
from tampu.model.message import Lease
from tampu.model.reviews import ReviewPage, ReviewPreview, ReviewRecord
from tampu.wire import reviews as wire

_READ = reader(ReviewRecord)
_READ_PAGE = reader(ReviewPage)
_READ_PREVIEW = reader(ReviewPreview)
_READ_DONE = reader(wire.AskedReview, lambda _: None)


def _path(id: str, verb: str = "") -> str:
    return f"/v1/reviews/{validate.id_text(id)}{verb}"


class RemoteReviewVerbs(DecideVerbs):
    def get_review(self, id: str) -> Steps[ReviewRecord]:
        return (yield from call("GET", _path(id), _READ))

    def list_reviews(
        self,
        *,
        role: str | None = None,
        assignee: str | None = None,
        queue: str | None = None,
        pattern: str | None = None,
        after: str | None = None,
        limit: int = 100,
    ) -> Steps[ReviewPage]:
        validate.whole(limit, "limit", 1, 1000)
        query = [
            ("role", role), ("assignee", assignee), ("queue", queue), ("pattern", pattern), ("after", after),
            ("limit", limit),
        ]  # fmt: skip
        return (yield from call("GET", "/v1/reviews", _READ_PAGE, query=query))

    def preview_review(
        self,
        pattern: str | dict[str, Any],
        payload: Any = None,
        *,
        queue: str = "preview",
        type: str | None = None,
        labels: dict[str, str] | None = None,
        headers: dict[str, str] | None = None,
        parameters: dict[str, Any] | None = None,
    ) -> Steps[ReviewPreview]:
        body = wire.PreviewReview(pattern, payload, queue, type, labels, headers, parameters)
        return (yield from call("POST", "/v1/reviews/preview", _READ_PREVIEW, body, repeat=True))

    def claim_review(self, id: str, *, by: str | None = None) -> Steps[ReviewRecord]:
        return (yield from call("POST", _path(id, "/claim"), _READ, wire.ClaimReview(by), repeat=True))

    def reassign_review(
        self, id: str, to: str | None = None, *, roles: Sequence[str] | None = None, by: str | None = None
    ) -> Steps[ReviewRecord]:
        body = wire.ReassignReview(to, None if roles is None else list(roles), by)
        return (yield from call("POST", _path(id, "/reassign"), _READ, body, repeat=True))

    def comment_review(self, id: str, text: str, *, by: str | None = None) -> Steps[ReviewRecord]:
        return (yield from call("POST", _path(id, "/comment"), _READ, wire.CommentReview(text, by), repeat=False))

    def decide_review(
        self,
        id: str,
        option: str,
        *,
        by: str | None = None,
        reason: str | None = None,
        fields: dict[str, Any] | None = None,
        payload: Any = None,
        role: str | None = None,  # noqa: ARG002 - the server knows the roles of the key
    ) -> Steps[ReviewRecord]:
        body = wire.DecideReview(option, by, reason, fields or {}, payload)
        return (yield from call("POST", _path(id, "/decide"), _READ, body, repeat=True))

    def ask_review(
        self, lease: Lease | str, review: Any, *, reason: str | None = None, id: str | None = None
    ) -> Steps[None]:
        receipt, _, name = asking(lease, id, reason)
        yield from call("POST", "/v1/reviews", _READ_DONE, wire.AskReview(name, receipt, review, reason), repeat=False)
