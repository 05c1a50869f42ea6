"""JSON and MessagePack: choosing between them, decoding, encoding, and the errors of undecodable bodies."""

from __future__ import annotations

import re
from itertools import accumulate
from typing import Any, TypeVar

import msgspec

from tampu.model.decoders import from_json, from_msgpack
from tampu.model.errors import InvalidMessage, PayloadTooLarge, TampuError
from tampu.model.message import JSON, MSGPACK

MAX_DEPTH = 200
"""Lists and maps in each other. Code that walks a value may recurse."""
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_STEPS = bytes.maketrans(b"[{]}", b"\x02\x02\x00\x00")
_NOT_CONTAINERS = bytes(set(range(256)) - {*range(0x80, 0xA0), *range(0xDC, 0xE0)})
_FIXED = {0xCA: 4, 0xCB: 8, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8, 0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8} | {
    0xD4 + n: 1 + (1 << n) for n in range(5)
}
"""MessagePack: bytes after the first byte of a value."""
_SIZED = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xC7: 1, 0xC8: 2, 0xC9: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4}
"""Bytes of the length that follows the first byte; as many bytes follow that, and one more in an extension."""
_COUNTED = {0xDC: (2, 1), 0xDD: (4, 1), 0xDE: (2, 2), 0xDF: (4, 2)}
"""Bytes of the count of a list or map, and values for each."""


def check_depth(raw: bytes, media: str, field: str) -> None:
    """Refuse a value that is nested too deeply."""
    if _msgpack_too_deep(raw) if media == MSGPACK else _json_too_deep(raw):
        raise InvalidMessage(f"the {field} is nested too deeply: the limit is {MAX_DEPTH} levels", field=field)


def _json_too_deep(raw: bytes) -> bool:
    if len(raw) <= MAX_DEPTH or raw.count(b"[") + raw.count(b"{") <= MAX_DEPTH:  # nearly always
        return False
    outside = b"".join(raw.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')[::2])
    brackets = outside.translate(_STEPS, _NOT_BRACKETS)
    return max(accumulate(step - 1 for step in brackets), default=0) > MAX_DEPTH


def _msgpack_too_deep(raw: bytes) -> bool:
    """False for bytes that are not MessagePack: the decoder says what is wrong with them."""
    if len(raw) <= MAX_DEPTH or len(raw.translate(None, _NOT_CONTAINERS)) <= MAX_DEPTH:  # nearly always
        return False
    left = [1]
    """How many values are missing, of each list and map that is open."""
    at, end = 0, len(raw)
    while left and at < end:
        if not left[-1]:
            left.pop()
            continue
        left[-1] -= 1
        first = raw[at]
        at += 1
        count = -1
        if 0x80 <= first < 0xA0:
            count = (first & 15) * (1 if first & 16 else 2)
        elif 0xA0 <= first < 0xC0:
            at += first & 31
        elif first in _FIXED:
            at += _FIXED[first]
        elif first in _SIZED:
            size = _SIZED[first]
            at += size + int.from_bytes(raw[at : at + size]) + (0xC7 <= first <= 0xC9)
        elif first in _COUNTED:
            size, each = _COUNTED[first]
            count = int.from_bytes(raw[at : at + size]) * each
            at += size
        if count >= 0:
            left.append(count)
            if len(left) > MAX_DEPTH + 1:
                return True
    return False


T = TypeVar("T")
_NAMES = {JSON: JSON, MSGPACK: MSGPACK, "application/x-msgpack": MSGPACK, "application/vnd.msgpack": MSGPACK}
_PATH = re.compile(r"`\$(?:\[\.\.\.\]|\[\d+\])*\.?([A-Za-z_]\w*)?(?:\[\.\.\.\]|\[\d+\])*\.?([A-Za-z_]\w*)?")
MAX_VALUES = 500_000
"""Maximum values in a JSON body: each costs up to 200 bytes when it is decoded. Texts count once, however long."""
GROWTH = 6
"""A value has at most this many times the bytes of the same value in another encoding. JSON may write a letter as
\\u0061, MessagePack writes 0.5 in nine bytes."""
_UNKNOWN = re.compile(r"unknown field `(\w+)`|required field `(\w+)`")


class UnsupportedMedia(TampuError):
    """The route does not accept this content type."""

    code = "unsupported_media_type"


def media_of(content_type: str | None) -> str:
    """The media type of a body by its Content-Type; JSON if there is none."""
    if not content_type:
        return JSON
    name = content_type.partition(";")[0].strip().lower()
    found = _NAMES.get(name)
    if found is None:
        raise UnsupportedMedia(f"{name[:60]} is not supported", field="content-type", hint=f"send {JSON} or {MSGPACK}")
    return found


def response_media(accept: str | None, default: str) -> str:
    """The media type of the response: the first supported one in Accept, else the default."""
    if accept:
        for part in accept.split(","):
            name = part.partition(";")[0].strip().lower()
            if name in _NAMES:
                return _NAMES[name]
    return default


class Form:
    """Reads a body of one type from JSON or MessagePack."""

    def __init__(self, type: Any, json: Any = None, *, has_any: bool = False) -> None:
        """``has_any``: a field takes any value, however deep. Other types are as deep as they are written."""
        self._json = from_json(json or type)
        self._msgpack = from_msgpack(type)
        self._has_any = has_any

    def read(self, raw: bytes, media: str) -> Any:
        if self._has_any:
            check_depth(raw, media, "body")
        try:
            if media == MSGPACK:
                return self._msgpack.decode(raw)
            if not raw.isascii():
                raw.decode()  # parts that are stored without being decoded must be valid UTF-8 too
            check_values(raw)
            return self._json.decode(raw)
        except msgspec.ValidationError as error:
            raise InvalidMessage(str(error), field=_field(str(error))) from None
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise InvalidMessage(f"the body is not {media}: {error}", field="body") from None
        except RecursionError:
            raise InvalidMessage("the body is nested too deeply", field="body") from None


def check_values(raw: bytes) -> None:
    """Refuse JSON with too many values before it is decoded. (MessagePack says its counts beforehand.)"""
    if len(raw) <= MAX_VALUES or _separators(raw) <= MAX_VALUES:  # nearly always: also with those inside of texts
        return
    plain = raw.replace(b"\\\\", b"").replace(b'\\"', b"")
    if plain.count(b'"') > 4 * MAX_VALUES or _separators(b"".join(plain.split(b'"')[::2])) > MAX_VALUES:
        raise PayloadTooLarge(
            f"the body has more than {MAX_VALUES} values", field="body", hint="send smaller batches, or MessagePack"
        )


def _separators(raw: bytes) -> int:
    """Each value of a document but the first comes after one of these."""
    return raw.count(b",") + raw.count(b"[") + raw.count(b"{")


def decode_part(raw: bytes | msgspec.Raw, media: str, most: int, field: str, growth: int = 1) -> Any:
    """Decode a value that `Form` left raw. One that cannot fit into ``most`` bytes is refused undecoded.

    ``growth``: `GROWTH` if the value is not stored as it is.
    """
    part = bytes(raw)
    if len(part) > growth * most:
        raise PayloadTooLarge(f"the {field} has {len(part)} bytes; the limit is {most}", field=field)
    check_depth(part, media, field)
    try:
        if media == MSGPACK:
            return _from_msgpack(part)
        check_values(part)
        return _from_json(part)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidMessage(f"the {field} is not {_LABELS[media]}: {error}", field=field) from None


_LABELS = {JSON: "JSON", MSGPACK: "MessagePack"}
_from_json = msgspec.json.Decoder().decode
_from_msgpack = msgspec.msgpack.Decoder().decode


def _field(text: str) -> str | None:
    """The field a validation error is about: the innermost name of its path."""
    named = _UNKNOWN.search(text)
    if named:
        return named[1] or named[2]
    path = _PATH.search(text)
    return (path[2] or path[1] or "body") if path else "body"


_ENCODERS = {JSON: msgspec.json.Encoder().encode, MSGPACK: msgspec.msgpack.Encoder().encode}


def write(value: Any, media: str) -> bytes:
    return _ENCODERS[media](value)
