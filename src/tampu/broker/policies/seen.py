"""A message as expressions see it: the variable ``message``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tampu.broker.policies import cel
from tampu.broker.publish_steps import Draft
from tampu.model.errors import InvalidMessage
from tampu.model.message import Message
from tampu.model.reasons import REFUSED

_OF_DRAFT = ("type", "labels", "headers", "priority", "correlation_id", "key", "group", "source")


def of_draft(draft: Draft, fields: frozenset[str] | None = None) -> cel.Context:
    """The context of a message that is being published; with ``fields`` only these."""
    known = {name: draft.field(name) for name in _OF_DRAFT}
    known |= {"queue": draft.queue, "attempts": 0, "error": None, "reason": None, "review": {}}
    return _context(fields, len(draft.field("payload")), lambda: draft.payload, known)


def of_message(message: Message) -> cel.Context:
    """The context of a message that is stored."""
    body = message.body
    known = {name: getattr(body, name) for name in _OF_DRAFT}
    known |= {
        "queue": message.queue, "attempts": message.attempts, "error": message.last_error, "reason": message.reason,
        "review": _decision(message),
    }  # fmt: skip
    return _context(None, len(body.payload), lambda: message.payload, known)


def _decision(message: Message) -> dict[str, Any]:
    """What was decided about a message: ``option``, ``outcome``, ``by``, ``reason`` and ``fields``."""
    if message.reason == REFUSED:
        return {"outcome": "refuse", "reason": message.last_error or "", "fields": {}}
    review = message.review
    if review is None or review.decision is None:
        return {}
    decision = review.decision
    return {
        "option": decision.option, "outcome": decision.outcome, "by": decision.by, "reason": decision.reason or "",
        "fields": decision.fields,
    }  # fmt: skip


def _context(
    wanted: frozenset[str] | None, size: int, payload: Callable[[], Any], fields: dict[str, Any]
) -> cel.Context:
    fields |= {"labels": fields["labels"] or {}, "headers": fields["headers"] or {}, "size": size}
    names = fields if wanted is None else wanted & fields.keys()
    seen = {name: "" if fields[name] is None else fields[name] for name in names}
    if size <= cel.MOST_PAYLOAD and (wanted is None or "payload" in wanted):
        try:
            seen["payload"] = payload()
        except (ValueError, TypeError, InvalidMessage):
            raise cel.Failed("the payload cannot be decoded") from None
    return cel.context(seen, size)
