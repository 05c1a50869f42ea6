"""Renders HTML. Templates escape every value, so the content of a message is never markup."""

from __future__ import annotations

import functools
import hashlib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jinja2
import msgspec

from tampu.model.message import JSON, MSGPACK, Message

_HERE = Path(__file__).parent
_MAX_SHOWN = 20_000
"""Characters of a payload that are shown."""
KINDS = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}


@functools.cache
def _environment() -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"age": age, "number": number, "moment": moment, "clock": clock}
    made.globals["asset"] = asset
    return made


def render(template: str, **values: Any) -> str:
    return _environment().get_template(template).render(values)


@functools.cache
def _files() -> dict[str, tuple[bytes, str]]:
    return {path.name: (path.read_bytes(), KINDS[path.suffix]) for path in (_HERE / "static").iterdir()}


def static(name: str) -> tuple[bytes, str] | None:
    """(bytes, content type) of a static file."""
    return _files().get(name)


@functools.cache
def asset(name: str) -> str:
    """The address of a static file; it changes when the file does."""
    known = static(name)
    assert known is not None
    return f"static/{name}?v={hashlib.sha256(known[0]).hexdigest()[:12]}"


def number(value: int) -> str:
    return f"{value:,}".replace(",", "\u202f")


def age(seconds: float | None) -> str:
    if seconds is None:
        return "\u2013"
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}" if seconds >= 10 * size else f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"


def moment(value: datetime) -> str:
    """The ``datetime`` attribute of a time element."""
    return value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def clock(value: datetime) -> str:
    """The visible text of a time element; the script converts it to the reader's time zone."""
    return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def value(found: Any) -> str:
    """A value as readable text: JSON, or its Python repr."""
    try:
        raw = msgspec.json.encode(found)
    except (TypeError, ValueError, RecursionError):
        raw = msgspec.json.encode(repr(found))
    return msgspec.json.format(raw, indent=2).decode()


def payload(message: Message) -> str:
    """A payload as readable text."""
    raw, kind = message.body.payload, message.body.content_type
    try:
        if kind == JSON:
            text = msgspec.json.format(raw, indent=2).decode()
        elif kind == MSGPACK:
            text = value(msgspec.msgpack.decode(raw))
        elif kind.startswith("text/"):
            text = raw.decode()
        else:
            text = f"{len(raw)} bytes of {kind}\n{raw[:512].hex(' ', 4)}"
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        text = f"{len(raw)} bytes that are not {kind}\n{raw[:512].hex(' ', 4)}"
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}\n… {len(text) - _MAX_SHOWN} more characters"
