"""The JSON documents that `--json` prints. Every key is always present; null means not set."""

from __future__ import annotations

import base64
from typing import Any

import msgspec

import tampu
from tampu.cli.exits import describe_error

BASE64 = "shown in base64: it is bytes, nested too deeply, or does not match its content type"
_RESERVED_LEVELS = 50
"""Levels of nesting reserved for the document around a payload or a result."""


def payload(message: tampu.Message | tampu.Schedule) -> dict[str, Any]:
    """The payload as a value; in base64 if it is bytes, nested too deeply or does not match its content type."""
    try:
        value = _not_too_deep(message.payload)
    except (ValueError, RecursionError, msgspec.MsgspecError):
        value = message.message.payload if isinstance(message, tampu.Schedule) else message.raw
    if isinstance(value, bytes):
        return {"payload": None, "payload_base64": base64.b64encode(value).decode()}
    return {"payload": value}


def result(message: tampu.Message) -> dict[str, Any]:
    """The result of the message; as MessagePack in base64 if it is nested too deeply."""
    try:
        return {"result": _not_too_deep(message.result)}
    except RecursionError:
        return {"result": None, "result_base64": base64.b64encode(message.result_raw or b"").decode()}


def _not_too_deep(value: Any) -> Any:
    if isinstance(value, dict | list):
        nested = value
        for _ in range(_RESERVED_LEVELS):
            nested = [nested]
        msgspec.json.encode(nested, enc_hook=str)
    return value


def message(m: tampu.Message) -> dict[str, Any]:
    return {
        "id": m.id,
        "tenant": m.tenant,
        "queue": m.queue,
        "state": m.state,
        "type": m.type,
        **payload(m),
        "content_type": m.content_type,
        "priority": m.priority,
        "attempts": m.attempts,
        "max_attempts": m.max_attempts,
        "created_at": m.created_at,
        "run_at": m.run_at,
        "deadline": m.deadline,
        "expires_at": m.expires_at,
        "ended_at": m.ended_at,
        "key": m.key,
        "idempotency_key": m.idempotency_key,
        "group": m.group,
        "labels": m.labels,
        "headers": m.headers,
        "correlation_id": m.correlation_id,
        "causation_id": m.causation_id,
        "parent_id": m.parent_id,
        "source": m.source,
        "reason": m.reason,
        "last_error": m.last_error,
        "cancel_requested": m.cancel_requested,
        "duplicate": m.duplicate,
    }


def lease(value: tampu.Lease) -> dict[str, Any]:
    return {
        "receipt": value.receipt,
        "until": value.until,
        "attempt": value.attempt,
        "worker": value.worker,
        "message": message(value.message),
    }


def transition(t: tampu.Transition) -> dict[str, Any]:
    return {
        "partition": t.partition,
        "offset": t.offset,
        "at": t.at,
        "tenant": t.tenant,
        "queue": t.queue,
        "verb": t.verb,
        "id": t.id,
        "state": t.state,
        "attempt": t.attempt,
        "type": t.type,
        "worker": t.worker,
        "detail": t.detail,
        "fingerprint": t.fingerprint,
    }


def outcome(value: tampu.Outcome) -> dict[str, Any]:
    return {
        "id": value.id,
        "state": value.state,
        "error": None if value.error is None else describe_error(value.error),
    }


def stats(s: tampu.Stats) -> dict[str, Any]:
    age = s.oldest_ready_age
    return {
        "queue": s.queue,
        "status": s.status,
        **{str(state): s.counts.get(state, 0) for state in tampu.State},
        "depth": s.depth,
        "oldest_ready_seconds": None if age is None else age.total_seconds(),
    }


def config(value: tampu.QueueConfig) -> dict[str, Any]:
    """Every setting; durations in seconds."""
    found = {name: msgspec.to_builtins(getattr(value, name)) for name in tampu.QueueConfig.__struct_fields__}
    if value.backoff is not None:
        found["backoff"] = {name: getattr(value.backoff, name) for name in tampu.Backoff.__struct_fields__}
    return found


def schedule(s: tampu.Schedule) -> dict[str, Any]:
    """Durations in seconds."""
    new = s.message
    return {
        "name": s.name,
        "tenant": s.tenant,
        "queue": s.queue,
        "status": s.status,
        "cron": s.cron,
        "tz": s.tz,
        "every": None if s.every is None else s.every.total_seconds(),
        "start": s.start,
        "end": s.end,
        "limit": s.limit,
        "jitter": s.jitter.total_seconds(),
        "missed": s.missed,
        "paused": s.paused,
        "created_at": s.created_at,
        "fired": s.fired,
        "last": s.last,
        "last_id": s.last_id,
        "next": s.next,
        "error": s.error,
        "type": new.type,
        **payload(s),
        "content_type": new.content_type,
        "priority": new.priority,
        "max_attempts": new.max_attempts,
        "key": new.key,
        "group": new.group,
        "labels": new.labels or {},
        "headers": new.headers or {},
    }
