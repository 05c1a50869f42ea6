"""Attributes of SQS messages, kept in the headers of tampu messages, and their MD5 digests.

A text attribute that fits is a header of its name, so that workers of tampu read it. All others (numbers, binary data,
long texts, names that SQS reserves) are one JSON text, cut into as many headers as it needs.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
import struct
from typing import Any

import msgspec

from tampu.model.decoders import convert, from_json
from tampu.server.sqs.errors import SqsError, invalid

MOST = 10
"""Attributes of one message."""
_PACKED = "sqs-attributes."
_RESERVED = ("sqs-", "tampu-")
"""Beginnings of headers that have a meaning of their own: no sender of SQS sets them."""
_LONGEST = 2048
_MOST_PARTS = 50
_NAME = re.compile(r"[A-Za-z0-9_\-]+(\.[A-Za-z0-9_\-]+)*\Z")
_TYPES = ("String", "Number", "Binary")
_TRACE = "AWSTraceHeader"
_ALLOWED = re.compile("[\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]*\\Z")


class Value(
    msgspec.Struct,
    frozen=True,
    omit_defaults=True,
    rename={"type": "DataType", "text": "StringValue", "data": "BinaryValue"},
):
    """One attribute, as it is on the wire: ``data`` is base64."""

    type: str
    text: str | None = None
    data: str | None = None

    @property
    def size(self) -> int:
        return len(self.type.encode()) + (len(self.raw))

    @property
    def raw(self) -> bytes:
        return (self.text or "").encode() if self.data is None else base64.b64decode(self.data)


_read_packed = from_json(dict[str, Value]).decode


def is_text(text: str) -> bool:
    """True if SQS takes the text: it has only characters that XML has."""
    return _ALLOWED.match(text) is not None


def checked(given: dict[str, Any] | None) -> dict[str, Value]:
    """The attributes of a message that is sent."""
    if not given:
        return {}
    if len(given) > MOST:
        raise invalid(f"Number of message attributes [{len(given)}] exceeds the allowed maximum [{MOST}].")
    return {_name(name): _value(name, value) for name, value in given.items()}


def _name(name: str) -> str:
    if len(name) > 256 or not _NAME.match(name) or name.lower().startswith(("aws.", "amazon.")):
        raise invalid(f"The message attribute name {name!r:.100} is invalid.")
    return name


def _value(name: str, given: Any) -> Value:
    try:
        value = convert({k: v for k, v in given.items() if v is not None}, Value)
        kind = value.type.partition(".")[0]
        if kind not in _TYPES or len(value.type) > 256:
            raise invalid(f"The message attribute {name!r:.100} has an invalid DataType: use String, Number or Binary.")
        if (kind == "Binary") != (value.data is not None) or (kind != "Binary" and value.text is None):
            raise invalid(
                f"The message attribute {name!r:.100} needs a {'Binary' if kind == 'Binary' else 'String'}Value."
            )
        if not value.raw:
            raise invalid(f"The message attribute {name!r:.100} must have a value that is not empty.")
        if kind == "Number":
            float(value.text or "")
    except (msgspec.ValidationError, AttributeError, TypeError, binascii.Error, ValueError):
        raise invalid(f"The message attribute {name!r:.100} has a value that does not fit its DataType.") from None
    if value.text is not None and not is_text(value.text):
        raise SqsError(
            "InvalidMessageContents", f"The message attribute {name!r:.100} has characters that are not allowed."
        )
    return value


def size(attributes: dict[str, Value]) -> int:
    """What attributes count towards the size of a message."""
    return sum(len(name.encode()) + value.size for name, value in attributes.items())


def to_headers(attributes: dict[str, Value], system: dict[str, Value]) -> dict[str, str]:
    headers: dict[str, str] = {}
    packed: dict[str, Value] = {}
    for name, value in attributes.items():
        if (
            value.type == "String"
            and value.text is not None
            and len(value.text) <= _LONGEST
            and len(name) <= 128
            and not name.startswith(_RESERVED)
        ):
            headers[name] = value.text
        else:
            packed[name] = value
    if _TRACE in system:
        packed[f"aws.{_TRACE}"] = system[_TRACE]  # no attribute of a user has such a name
    if packed:
        text = msgspec.json.encode(packed).decode()
        parts = [text[at : at + _LONGEST] for at in range(0, len(text), _LONGEST)]
        if len(parts) > _MOST_PARTS:
            most = _LONGEST * _MOST_PARTS >> 10
            raise invalid(f"The attributes are too large: up to {most} KB; put large values into the body.")
        headers |= {f"{_PACKED}{number}": part for number, part in enumerate(parts)}
    return headers


def of_headers(headers: dict[str, str]) -> tuple[dict[str, Value], str | None]:
    """(the attributes, the trace header) of a message. Headers that others have set are text attributes."""
    plain = {name: Value("String", text) for name, text in headers.items() if not name.startswith(_PACKED) and text}
    parts = [headers[f"{_PACKED}{n}"] for n in range(_MOST_PARTS) if f"{_PACKED}{n}" in headers]
    try:
        packed = _read_packed("".join(parts)) if parts else {}
        for value in packed.values():
            _ = value.raw
    except (msgspec.MsgspecError, RecursionError, ValueError):  # somebody else's headers
        packed = {}
    trace = packed.pop(f"aws.{_TRACE}", None)
    return plain | packed, None if trace is None else trace.text


def chosen(attributes: dict[str, Value], names: list[str]) -> dict[str, Value]:
    """The attributes that a receiver asks for: by name, all, or by the beginning of the name (``shop.*``)."""
    if not names:
        return {}
    if "All" in names or ".*" in names:
        return attributes
    starts = tuple(name[:-1] for name in names if name.endswith(".*"))
    return {k: v for k, v in attributes.items() if k in names or (starts and k.startswith(starts))}


def digest(attributes: dict[str, Value]) -> str:
    """The MD5 of attributes, by which SDKs check what they sent and got."""
    md5 = hashlib.md5(usedforsecurity=False)

    def add(part: bytes) -> None:
        md5.update(struct.pack(">I", len(part)) + part)

    for name, value in sorted(attributes.items()):
        add(name.encode())
        add(value.type.encode())
        md5.update(b"\x01" if value.data is None else b"\x02")
        add(value.raw)
    return md5.hexdigest()


def digest_of(body: str) -> str:
    return hashlib.md5(body.encode(), usedforsecurity=False).hexdigest()
