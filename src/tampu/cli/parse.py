"""Parses what people type: durations, times, pairs, JSON. What the library checks is not checked here again."""

from __future__ import annotations

import contextlib
import re
from datetime import datetime
from typing import Any

import msgspec

import tampu
from tampu.model.config import DURATIONS
from tampu.model.times import seconds_of

_BYTE = re.compile(r"\(byte (\d+)\)")


duration = seconds_of


def optional_duration(text: str | None, field: str) -> float | None:
    return None if text is None else duration(text, field)


def moment(text: str | None, field: str) -> datetime | None:
    """A time in ISO 8601, with its zone."""
    if text is None:
        return None
    hint = "ISO 8601 with a zone, such as 2031-05-01T09:30:00Z or 2031-05-01T09:30:00+02:00"
    try:
        at = datetime.fromisoformat(text.strip())
    except ValueError:
        raise tampu.InvalidMessage(f"{field} {text!r:.60} is not a time", field=field, hint=hint) from None
    if at.tzinfo is None:
        raise tampu.InvalidMessage(f"{field} {text!r:.60} has no time zone", field=field, hint=hint)
    return at


def pair(text: str, field: str, error: type[tampu.TampuError] = tampu.InvalidMessage) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise error(f"{field} {text!r:.60} is not name=value", field=field, hint="write name=value")
    return name.strip(), value


def pairs(
    texts: list[str] | None, field: str, error: type[tampu.TampuError] = tampu.InvalidMessage
) -> dict[str, str] | None:
    """Name and value of each text. A repeated name is refused, as one of its values would silently be lost."""
    found: dict[str, str] = {}
    for text in texts or []:
        name, value = pair(text, field, error)
        if name in found:
            raise error(f"{field} {name!r:.60} is given twice", field=field, hint="give each name once")
        found[name] = value
    return found or None


def json_value(text: str | bytes, field: str, hint: str | None = None) -> Any:
    """A JSON value. An error says at which line and column."""
    raw = text if isinstance(text, bytes) else text.encode("utf-8", "surrogateescape")
    try:
        return msgspec.json.decode(raw)
    except RecursionError:
        raise tampu.InvalidMessage(f"the {field} is nested too deeply", field=field) from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        what = str(error).removeprefix("JSON is malformed: ")
        place = _BYTE.search(what)
        if place:
            before = raw[: int(place[1])]
            line, column = before.count(b"\n") + 1, len(before) - (before.rfind(b"\n") + 1) + 1
            what = what.replace(place[0], f"at line {line}, column {column}")
        elif "truncated" in what:
            what = "it is incomplete"
        raise tampu.InvalidMessage(f"the {field} is not JSON: {what}", field=field, hint=hint) from None


def unreadable(path: str, error: Exception) -> tampu.InvalidMessage:
    why = (error.strerror if isinstance(error, OSError) else None) or str(error)
    return tampu.InvalidMessage(f"{path} cannot be read: {why}", field="file")


def where(texts: list[str] | None) -> dict[str, Any]:
    """The filter of `list` and `replay`: ``type=a.b``, ``reason=x``, ``label.env=prod`` …"""
    found: dict[str, Any] = {}
    for text in texts or []:
        name, value = pair(text, "where")
        head, _, label = name.partition(".")
        values = found
        if head in ("label", "labels"):
            if not label:
                raise tampu.InvalidMessage("the label has no name", field="where", hint="write label.NAME=VALUE")
            values, name = found.setdefault("labels", {}), label
        if name in values:
            raise tampu.InvalidMessage(f"where has {name} twice", field="where", hint="give each field once")
        values[name] = moment(value, name) if values is found and name.endswith(("_after", "_before")) else value
    return found


def settings(texts: list[str]) -> dict[str, Any]:
    """The settings given to `config`; ``null`` means inherited."""
    given = pairs(texts, "setting", tampu.InvalidConfig) or {}
    return {name: _setting(name, value.strip()) for name, value in given.items()}


def _setting(name: str, value: str) -> Any:
    if value.lower() in ("null", "none", ""):
        return None
    if name == "backoff":
        return backoff(value)
    if name in DURATIONS:
        return duration(value, name, tampu.InvalidConfig)
    if name == "group_order":
        if value.lower() not in ("true", "false"):
            raise tampu.InvalidConfig(f"{name} cannot be {value!r:.60}", field=name, hint="use true, false or null")
        return value.lower() == "true"
    return value if name in ("status", "ordering", "group_by") else _number(value)


def _number(value: str) -> int | float | str:
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(value)
    return value


def backoff(value: str) -> Any:
    """``exponential:base=1,cap=5m,jitter=full``, a list of delays ``1,5,30``, or one delay."""
    kind, colon, rest = value.partition(":")
    if not kind.isalpha():
        delays = [duration(part, "backoff", tampu.InvalidConfig) for part in value.split(",")]
        return delays if len(delays) > 1 else delays[0]
    made: dict[str, Any] = {"kind": kind}
    given = pairs(rest.split(",") if colon else None, "backoff", tampu.InvalidConfig) or {}
    for name, text in given.items():
        if name not in ("base", "cap", "jitter"):
            raise tampu.InvalidConfig(
                f"backoff has no option {name!r:.40}", field="backoff", hint="exponential:base=1s,cap=5m,jitter=full"
            )
        made[name] = text if name == "jitter" else duration(text, "backoff", tampu.InvalidConfig)
    return made
