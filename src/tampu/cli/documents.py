"""The JSON documents that `--json` prints, with the names that the server uses too.

Every key is always present; null means not set.
"""

from __future__ import annotations

import base64
from typing import Any

import msgspec

import tampu
from tampu.cli.exits import describe_error
from tampu.model.times import SECOND, duration

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


def _fields(value: Any, *names: str) -> dict[str, Any]:
    return {name: getattr(value, name) for name in names}


def message(m: tampu.Message) -> dict[str, Any]:
    return {
        **_fields(m, "id", "tenant", "queue", "state", "type"),
        **payload(m),
        **_fields(m, "content_type", "priority", "attempts", "max_attempts"),
        **_fields(m, "created_at", "run_at", "deadline", "expires_at", "ended_at"),
        **_fields(m, "key", "idempotency_key", "group", "labels", "headers"),
        **_fields(m, "correlation_id", "causation_id", "parent_id", "source"),
        **_fields(m, "reason", "last_error", "cancel_requested", "duplicate"),
        **_fields(m, "worker", "lease_until", "started_at", "updated_at"),
        "progress": None if m.progress is None else msgspec.structs.asdict(m.progress),
        "hold": m.body.hold,
        "review": None if m.body.review is None else msgspec.json.decode(m.body.review),
        "failures": [msgspec.structs.asdict(failure) for failure in m.failures],
    }


def lease(value: tampu.Lease) -> dict[str, Any]:
    return _fields(value, "receipt", "until", "attempt", "worker") | {"message": message(value.message)}


def transition(t: tampu.Transition) -> dict[str, Any]:
    return {
        **_fields(t, "partition", "offset", "at", "at_us", "tenant", "queue", "verb", "id"),
        **_fields(t, "state", "attempt", "type", "worker", "detail", "fingerprint", "correlation_id"),
    }


def outcome(value: tampu.Outcome) -> dict[str, Any]:
    return _fields(value, "id", "state") | {"error": None if value.error is None else describe_error(value.error)}


def stats(s: tampu.Stats) -> dict[str, Any]:
    age = s.oldest_ready_age
    return {
        "queue": s.queue,
        "status": s.status,
        "counts": {str(state): s.counts.get(state, 0) for state in tampu.State},
        "depth": s.depth,
        "oldest_ready_age": None if age is None else age.total_seconds(),
    }


def config(value: tampu.QueueConfig) -> dict[str, Any]:
    """Every setting; durations in seconds."""
    found = {name: msgspec.to_builtins(getattr(value, name)) for name in tampu.QueueConfig.__struct_fields__}
    if value.backoff is not None:
        found["backoff"] = msgspec.structs.asdict(value.backoff)
    return found


def schedule(s: tampu.Schedule) -> dict[str, Any]:
    """Durations in seconds."""
    new = s.message
    delays = {name: None if value is None else duration(value, name) / SECOND for name, value in _delays(new)}
    return {
        **_fields(s, "name", "tenant", "queue", "status", "cron", "tz"),
        "every": None if s.every is None else s.every.total_seconds(),
        **_fields(s, "start", "end", "limit"),
        "jitter": s.jitter.total_seconds(),
        **_fields(s, "missed", "paused", "created_at", "fired", "last", "last_id", "next", "error"),
        "message": {
            "type": new.type,
            **payload(s),
            **_fields(new, "content_type", "priority", "max_attempts", "deadline", "key", "group"),
            **delays,
            **_fields(new, "correlation_id", "causation_id", "parent_id", "source", "hold"),
            "labels": new.labels or {},
            "headers": new.headers or {},
        },
    }


def _delays(new: tampu.NewMessage) -> list[tuple[str, Any]]:
    return [("delay", new.delay), ("ttl", new.ttl)]
