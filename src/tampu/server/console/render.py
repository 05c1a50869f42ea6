"""Renders HTML. Templates escape every value, so the content of a message is never markup."""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import jinja2
import msgspec

import tampu
from tampu.model.message import JSON, MSGPACK, Message
from tampu.palette import PALETTE

_HERE = Path(__file__).parent
STATIC = _HERE / "static"
_MAX_SHOWN = 20_000
"""Characters of a payload that are shown."""
_MOST_DUMPED = 4096
_LONG_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
KINDS = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "frame-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
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
    made.filters |= {
        "age": age, "number": number, "moment": moment, "clock": clock, "short": short, "json": as_json,
        "value": value, "points": points, "lasting": lasting,
    }  # fmt: skip
    made.globals |= {"asset": asset, "version": tampu.__version__}
    return made


def render(template: str, **values: Any) -> str:
    return _environment().get_template(template).render(values)


@functools.cache
def _files() -> dict[str, tuple[bytes, str]]:
    files = (path for path in STATIC.rglob("*.*") if path.suffix in KINDS)
    found = {path.name: (path.read_bytes(), KINDS[path.suffix]) for path in files}
    return {**found, "palette.css": (PALETTE.encode(), KINDS[".css"])}


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


def age(seconds: float | timedelta | None) -> str:
    """A duration, or how long ago: 3 s, 1.5 min, 4 d."""
    if seconds is None:
        return "\u2013"
    if isinstance(seconds, timedelta):
        seconds = seconds.total_seconds()
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}" if seconds >= 10 * size else f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"


def lasting(seconds: float | None) -> str:
    """A duration that may be short: 3 ms, 1.2 s, 4.0 min."""
    if seconds is None:
        return "\u2013"
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 60 else age(seconds)


def short(id: str) -> str:
    """The end of a long id, which tells neighbours apart. An id that somebody chose stays whole."""
    return f"…{id[-9:]}" if _LONG_ID.match(id) else id


def points(values: Sequence[float], width: int, height: int, most: float | None = None) -> str:
    """The points of a small line chart."""
    top = max(most or 0, *values, 1)
    step = width / max(1, len(values) - 1)
    return " ".join(f"{n * step:.1f},{height - 1 - (height - 2) * value / top:.1f}" for n, value in enumerate(values))


def as_json(found: Any) -> str:
    """For attributes that a script reads."""
    return msgspec.json.encode(found).decode()


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
    return payload_as(message.body.payload, message.body.content_type, "pretty")


def payload_as(raw: bytes, kind: str, way: str) -> str:
    """A payload as ``pretty`` text, ``raw`` text, or ``hex``."""
    if way == "hex":
        return _hex_dump(raw)
    try:
        if way == "raw":
            text = raw.decode()
        elif kind == JSON:
            text = msgspec.json.format(raw, indent=2).decode()
        elif kind == MSGPACK:
            text = value(msgspec.msgpack.decode(raw))
        elif kind.startswith("text/"):
            text = raw.decode()
        else:
            text = f"{len(raw)} bytes of {kind}\n{_hex_dump(raw)}"
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        text = f"{len(raw)} bytes that are not {'UTF-8' if way == 'raw' else kind}\n{_hex_dump(raw)}"
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}\n… {len(text) - _MAX_SHOWN} more characters"


def _hex_dump(raw: bytes) -> str:
    """The first bytes as hexadecimal numbers, with the text beside them."""
    lines = []
    for start in range(0, min(len(raw), _MOST_DUMPED), 16):
        part = raw[start : start + 16]
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        lines.append(f"{start:06x}  {part.hex(' '):<47}  {text}")
    if len(raw) > _MOST_DUMPED:
        lines.append(f"… {len(raw) - _MOST_DUMPED} more bytes")
    return "\n".join(lines)
