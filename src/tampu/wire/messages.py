"""Messages and leases over HTTP, and conversion from and to the model.

JSON and MessagePack have the same fields. In MessagePack a payload is its raw bytes. In JSON it is the value itself if
its content type is JSON or text, else ``payload_base64``. Fields that have their default are left out.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from tampu.model.message import JSON, Body, Failure, Lease, Message, Progress, State
from tampu.model.times import instant, moment, moment_or_none
from tampu.model.values import NOT_ENCODED, find_change


class MessageView(msgspec.Struct, omit_defaults=True):
    id: str
    tenant: str
    queue: str
    state: State
    type: str
    content_type: str
    attempts: int
    max_attempts: int
    created_at: datetime
    payload: Any = msgspec.UNSET
    payload_base64: bytes | None = None
    priority: int = 0
    headers: dict[str, str] | None = None
    labels: dict[str, str] | None = None
    deadline: datetime | None = None
    key: str | None = None
    idempotency_key: str | None = None
    correlation_id: str | None = None
    causation_id: str | None = None
    parent_id: str | None = None
    group: str | None = None
    source: str | None = None
    hold: str | None = None
    run_at: datetime | None = None
    expires_at: datetime | None = None
    ended_at: datetime | None = None
    reason: str | None = None
    last_error: str | None = None
    failures: tuple[Failure, ...] = ()
    result: Any = None
    result_base64: bytes | None = None
    """JSON only: a result that JSON cannot represent, as MessagePack."""
    cancel_requested: bool = False
    duplicate: bool = False
    own_attempts: bool = False
    """True if the publisher set ``max_attempts``; else it is the queue's."""
    review: dict[str, Any] | None = None
    """The review that it waits for; with a ``decision`` when there is one."""
    worker: str | None = None
    """Who works on it, while it is leased; the next three are about this lease."""
    lease_until: datetime | None = None
    started_at: datetime | None = None
    updated_at: datetime | None = None
    """When its worker has last extended the lease."""
    progress: Progress | None = None


class LeaseView(msgspec.Struct, omit_defaults=True):
    """A claimed message. Settle or extend it with its receipt before ``until``."""

    receipt: str
    until: datetime
    message: MessageView
    worker: str | None = None


def message_view(m: Message, media: str) -> MessageView:
    body = m.body
    view = MessageView(
        m.id, m.tenant, m.queue, m.state, body.type, body.content_type, m.attempts, m.max_attempts,
        moment(m.created_us), body.payload, None, body.priority, body.headers, body.labels,
        moment_or_none(body.deadline), body.key, body.idempotency_key, body.correlation_id, body.causation_id,
        body.parent_id, body.group, body.source, body.hold, moment_or_none(m.run_us), moment_or_none(m.expires_us),
        moment_or_none(m.ended_us), m.reason, m.last_error, m.failures,
        None if m.result_raw is None else msgspec.Raw(m.result_raw), None, m.cancel_requested, m.duplicate,
        body.own_max_attempts is not None, None if body.review is None else msgspec.json.decode(body.review),
        m.worker, moment_or_none(m.lease_until_us), moment_or_none(m.started_us), moment_or_none(m.updated_us),
        m.progress,
    )  # fmt: skip
    if media == JSON:
        view.payload, view.payload_base64 = payload_in_json(body.payload, body.content_type)
        if m.result_raw is not None:
            view.result, view.result_base64 = result_in_json(m.result_raw)
    return view


def payload_in_json(raw: bytes, content_type: str) -> tuple[Any, bytes | None]:
    """(payload, payload_base64); exactly one is set."""
    try:
        if content_type == JSON:
            msgspec.json.decode(raw)  # the publisher may have labelled anything as JSON
            return msgspec.Raw(raw), None
        if content_type.startswith("text/"):
            return raw.decode(), None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        pass
    return msgspec.UNSET, raw


def result_in_json(raw: bytes) -> tuple[Any, bytes | None]:
    """(result, result_base64); exactly one is set: the second if JSON would change the value."""
    try:
        value = msgspec.msgpack.decode(raw)
        written = msgspec.json.encode(value)
        if find_change(value, msgspec.json.decode(written)) is None:
            return msgspec.Raw(written), None
    except NOT_ENCODED:
        pass
    return None, raw


def lease_view(lease: Lease, media: str) -> LeaseView:
    return LeaseView(lease.receipt, moment(lease.until_us), message_view(lease.message, media), lease.worker)


def _micros(value: datetime | None, field: str) -> int | None:
    return None if value is None else instant(value, field)


def to_message(view: MessageView) -> Message:
    """Convert a view that was decoded from MessagePack."""
    payload = b"" if view.payload is msgspec.UNSET else view.payload
    body = Body(
        view.type, payload, view.content_type, view.priority, view.headers, view.labels,
        _micros(view.deadline, "deadline"), view.key, view.idempotency_key, view.correlation_id, view.causation_id,
        view.parent_id, view.group, view.source, view.hold, view.max_attempts if view.own_attempts else None,
        review=None if view.review is None else msgspec.json.encode(view.review).decode(),
    )  # fmt: skip
    return Message(
        view.id, view.tenant, view.queue, view.state, body, view.attempts, view.max_attempts,
        instant(view.created_at, "created_at"), _micros(view.run_at, "run_at"), _micros(view.expires_at, "expires_at"),
        _micros(view.ended_at, "ended_at"), view.reason, view.last_error, view.failures,
        None if view.result is None else msgspec.msgpack.encode(view.result), view.cancel_requested, view.duplicate,
        view.worker, _micros(view.lease_until, "lease_until"), _micros(view.started_at, "started_at"),
        _micros(view.updated_at, "updated_at"), view.progress,
    )  # fmt: skip


def to_lease(view: LeaseView) -> Lease:
    return Lease(to_message(view.message), view.receipt, instant(view.until, "until"), view.worker)
