"""JSON and MessagePack: choosing between them, decoding, encoding, and the errors of undecodable bodies."""

from __future__ import annotations

import re
from typing import Any, TypeVar

import msgspec

from tampu.model.decoders import from_json, from_msgpack
from tampu.model.errors import InvalidMessage, PayloadTooLarge, TampuError
from tampu.model.message import JSON, MSGPACK
from tampu.wire.depth import check_depth

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
