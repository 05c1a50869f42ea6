"""Messages as tools show them, within bounds: long texts are cut, and say that they are."""

from __future__ import annotations

from typing import Any

import msgspec

from tampu.broker.admin.verbs import Stats
from tampu.model.message import JSON, Message, decode
from tampu.wire.messages import MessageView, message_view

SHORT = 200
LONG = 2000
MOST_PAYLOAD = 8000
_MOST_ITEMS = 200
_LEVELS = 12
_FAILURES = 5


def cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}… ({len(text):,} characters)"


def bounded(value: Any, most: int = LONG, levels: int = _LEVELS) -> Any:
    """A value of JSON with its long texts and lists cut."""
    if isinstance(value, str):
        return cut(value, most)
    if isinstance(value, list | tuple):
        if levels <= 0:
            return f"… ({len(value):,} items)"
        shown = [bounded(one, most, levels - 1) for one in value[:_MOST_ITEMS]]
        return shown if len(value) <= _MOST_ITEMS else [*shown, f"… ({len(value) - _MOST_ITEMS:,} more)"]
    if isinstance(value, dict):
        if levels <= 0:
            return f"… ({len(value):,} fields)"
        items = list(value.items())
        made = {cut(str(name), SHORT): bounded(one, most, levels - 1) for name, one in items[:_MOST_ITEMS]}
        return made if len(items) <= _MOST_ITEMS else made | {"…": f"{len(items) - _MOST_ITEMS:,} more"}
    return value


def plain(value: Any, most: int = LONG) -> Any:
    """A struct, or a list of them, as bounded JSON."""
    return bounded(msgspec.to_builtins(value), most)


def payload_text(message: Message, most: int) -> str:
    """The payload as text for a list."""
    raw, kind = message.raw, message.content_type
    try:
        if kind == JSON or kind.startswith("text/"):
            return cut(raw.decode(), most)
        value = decode(raw, kind)
        if not isinstance(value, bytes):
            return cut(msgspec.json.encode(value, enc_hook=str).decode(), most)
    except (ValueError, RecursionError, msgspec.MsgspecError):
        pass  # not what its content type says
    return f"{len(raw):,} bytes of {kind}"


def brief(m: Message) -> dict[str, Any]:
    """A line of a list: a few hundred bytes, whatever the message has."""
    found = {
        "id": m.id, "queue": m.queue, "state": m.state, "type": m.type, "attempts": f"{m.attempts} of {m.max_attempts}",
        "created_at": m.created_at, "run_at": m.run_at, "ended_at": m.ended_at, "reason": m.reason, "worker": m.worker,
        "error": m.last_error and cut(m.last_error, SHORT), "correlation_id": m.correlation_id,
        "labels": cut(msgspec.json.encode(m.labels).decode(), SHORT) if m.labels else None,
        "payload": payload_text(m, SHORT),
    }  # fmt: skip
    return {name: value for name, value in found.items() if value is not None}


def full(m: Message) -> dict[str, Any]:
    """Everything about a message: a large payload is cut, of many failures the last ones are shown."""
    view = message_view(m, JSON)
    large_result = m.result_raw is not None and len(m.result_raw) > MOST_PAYLOAD
    if large_result:
        view.result, view.result_base64 = None, None
    try:
        found = _document(m, view, cut_payload=len(m.raw) > MOST_PAYLOAD)
    except RecursionError:  # nested too deeply to read
        view.result = None
        found = _document(m, view, cut_payload=True)
    if large_result:
        found["result_bytes"] = len(m.result_raw or b"")
    if m.failures:
        found["failures"] = [
            {
                "attempt": one.attempt, "at": one.at, "outcome": one.outcome, "worker": one.worker,
                "error": one.error and cut(one.error, LONG), "traceback": one.traceback and one.traceback[-LONG:],
            }
            for one in m.failures[-_FAILURES:]
        ]  # fmt: skip
        if len(m.failures) > _FAILURES:
            found["earlier_failures"] = len(m.failures) - _FAILURES
    made: dict[str, Any] = bounded(found, MOST_PAYLOAD)
    return made


def _document(m: Message, view: MessageView, *, cut_payload: bool) -> dict[str, Any]:
    if cut_payload:
        view.payload, view.payload_base64 = msgspec.UNSET, None
    found: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(view))
    return found | ({"payload_text": payload_text(m, MOST_PAYLOAD)} if cut_payload else {})


def stats(s: Stats) -> dict[str, Any]:
    age = s.oldest_ready_age
    counts = {str(state): count for state, count in s.counts.items() if count}
    found: dict[str, Any] = {"queue": s.queue, "status": s.status, **counts, "depth": s.depth}
    return found if age is None else found | {"oldest_ready_seconds": round(age.total_seconds(), 1)}
