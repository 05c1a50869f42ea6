"""A message as expressions see it: the variable ``message``."""

from __future__ import annotations

from typing import Any

from tampu.broker.policies import cel
from tampu.broker.publish_steps import Draft
from tampu.model.message import Message, decode


def of_draft(draft: Draft, fields: frozenset[str] | None = None) -> Any:
    """The context of a message that is being published; with ``fields`` only these."""
    new = draft.message
    return _context(
        fields, new.payload, new.content_type, queue=draft.queue, type=new.type, labels=new.labels, headers=new.headers,
        priority=new.priority, attempts=0, correlation_id=new.correlation_id, key=new.key, group=new.group,
        source=new.source, error=None, reason=None,
    )  # fmt: skip


def of_message(message: Message) -> Any:
    """The context of a message that is stored."""
    body = message.body
    return _context(
        None, body.payload, body.content_type, queue=message.queue, type=body.type, labels=body.labels,
        headers=body.headers, priority=body.priority, attempts=message.attempts,
        correlation_id=body.correlation_id, key=body.key, group=body.group, source=body.source,
        error=message.last_error, reason=message.reason,
    )  # fmt: skip


def _context(wanted: frozenset[str] | None, payload: Any, content_type: str | None, **fields: Any) -> Any:
    raw = bytes(payload)
    fields |= {"labels": fields["labels"] or {}, "headers": fields["headers"] or {}, "size": len(raw)}
    names = fields if wanted is None else wanted & fields.keys()
    seen = {name: "" if fields[name] is None else fields[name] for name in names}
    if len(raw) <= cel.MOST_PAYLOAD and (wanted is None or "payload" in wanted):
        try:
            seen["payload"] = decode(raw, content_type or "")
        except (ValueError, TypeError):
            raise cel.Failed("the payload cannot be decoded") from None
    return cel.context(seen, len(raw))
