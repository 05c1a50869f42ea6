"""Templates of what a reviewer sees: text with paths such as ``{{ message.payload.lines[0].price }}``.

A path only looks up keys and positions of plain values. There are no attributes, calls, conditions or loops, and what a
path finds is never read as a template. The result is plain text without control characters: it neither moves the
cursor of a terminal nor, once escaped as all text, means anything to a browser.
"""

from __future__ import annotations

import functools
import re
from typing import Any

import msgspec

from tampu.model.errors import InvalidConfig
from tampu.model.message import Message, decode
from tampu.model.times import moment

MOST_CHARACTERS = 10_000
_MOST_PATHS = 100
_MOST_STEPS = 16
_MOST_VALUE = 2_000
_MISSING = "—"
_ROOTS = ("message", "parameters")
_HOLE = re.compile(r"\{\{([^{}]{0,400})\}\}")
_STEP = re.compile(r"""\.([A-Za-z_][A-Za-z0-9_-]{0,99})|\[(\d{1,9})\]|\["([^"\\]{1,100})"\]""")
_ROOT = re.compile(r"[a-z]+")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
Path = tuple[str | int, ...]
Parts = tuple[str | Path, ...]


def compiled(template: Any, field: str) -> Parts:
    """The template as texts and paths. Raises `InvalidConfig`."""
    if not isinstance(template, str) or len(template) > MOST_CHARACTERS:
        raise InvalidConfig(f"{field} must be a text of at most {MOST_CHARACTERS} characters", field=field)
    return _compiled(template, field)


@functools.lru_cache(1024)
def _compiled(template: str, field: str) -> Parts:
    parts: list[str | Path] = []
    end = paths = 0
    for hole in _HOLE.finditer(template):
        parts += [template[end : hole.start()], _path(hole.group(1).strip(), field)]
        end = hole.end()
        paths += 1
    parts.append(template[end:])
    if paths > _MOST_PATHS:
        raise InvalidConfig(f"{field} has more than {_MOST_PATHS} paths", field=field)
    if any(isinstance(part, str) and ("{{" in part or "}}" in part) for part in parts):
        raise InvalidConfig(
            f"{field}: braces that are no path", field=field, hint="a path is such as {{ message.payload.total }}"
        )
    return tuple(part for part in parts if part != "")


def _path(text: str, field: str) -> Path:
    root = _ROOT.match(text)
    name = root.group() if root else ""
    if name not in _ROOTS:
        raise InvalidConfig(
            f"{field}: {text!r:.100} is not a path", field=field, hint="paths begin with message or parameters"
        )
    steps: list[str | int] = [name]
    at = len(name)
    while at < len(text):
        step = _STEP.match(text, at)
        if step is None or len(steps) > _MOST_STEPS:
            raise InvalidConfig(
                f"{field}: {text!r:.100} is not a path",
                field=field,
                hint=f'use names, positions and keys, as in message.payload.lines[0]["price"]; at most {_MOST_STEPS}',
            )
        key, position, quoted = step.groups()
        steps.append(int(position) if position is not None else key or quoted)
        at = step.end()
    return tuple(steps)


def rendered(template: str, values: dict[str, Any]) -> str:
    """The text, with what the paths find in ``values``."""
    parts = compiled(template, "text")
    return "".join(_clean(part) if isinstance(part, str) else _text(_found(part, values)) for part in parts)


def _found(path: Path, value: Any) -> Any:
    for step in path:
        if isinstance(step, int) and isinstance(value, list | tuple):
            if step >= len(value):
                return None
            value = value[step]
        elif isinstance(step, str) and isinstance(value, dict):
            value = value.get(step)
        else:
            return None
    return value


def _text(value: Any) -> str:
    if value is None:
        return _MISSING
    if not isinstance(value, str):
        if isinstance(value, bytes | bytearray | memoryview):
            value = f"{len(value)} bytes"
        else:
            try:
                value = msgspec.json.encode(value).decode()
            except (TypeError, ValueError, RecursionError, msgspec.MsgspecError):
                value = "(cannot be shown)"
    text = _clean(value[: _MOST_VALUE + 1])
    return text if len(text) <= _MOST_VALUE else text[:_MOST_VALUE] + "…"


def _clean(text: str) -> str:
    return _CONTROL.sub(" ", text.replace("\r\n", "\n"))


def values_of(message: Message, parameters: dict[str, Any]) -> dict[str, Any]:
    """What templates can use."""
    body = message.body
    try:
        payload = decode(body.payload, body.content_type)
    except (ValueError, TypeError, RecursionError, msgspec.MsgspecError):
        payload = None
    seen: dict[str, Any] = {
        "id": message.id, "queue": message.queue, "type": body.type, "labels": body.labels or {},
        "headers": body.headers or {}, "priority": body.priority, "attempts": message.attempts,
        "correlation_id": body.correlation_id, "key": body.key, "group": body.group, "source": body.source,
        "created_at": moment(message.created_us).isoformat(), "payload": payload,
    }  # fmt: skip
    return {"message": seen, "parameters": parameters}
