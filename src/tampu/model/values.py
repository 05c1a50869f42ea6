"""Payloads, results and bodies as bytes. A payload is JSON if JSON keeps it, else MessagePack, else refused.

A value is kept if the decoded value equals it. Three conversions are allowed, because their result is obvious: a tuple
becomes a list, an enum its value, and a dataclass, Struct or attrs class a dict of its fields.
"""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Callable, Iterator, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec

from tampu.model.message import JSON, MSGPACK, Body

_JSON_KINDS = frozenset({str, int, float, bool, type(None), dict, list})
_CHANGED = (bytes, bytearray, memoryview, Decimal, UUID, date, time, timedelta, set, frozenset)
"""Types that encoders write as text, or as a list, if the format has no such type. (A datetime is a date.)"""
_to_json = msgspec.json.Encoder().encode
_to_msgpack = msgspec.msgpack.Encoder().encode
_from_json = msgspec.json.Decoder().decode
_from_msgpack = msgspec.msgpack.Decoder().decode
_LAST_DEFAULTS = tuple(reversed(Body.__struct_defaults__))
"""The defaults of a body's fields from the last one on. The first two, type and payload, have none."""

NOT_ENCODED = (TypeError, ValueError, RecursionError, OverflowError, msgspec.MsgspecError)
"""What encoders raise for a value that they refuse."""


class NotKept(ValueError):
    """A value that would be another one after decoding."""

    def __init__(self, path: str, value: Any) -> None:
        kind = "naive datetime" if isinstance(value, datetime) else type(value).__name__
        super().__init__(f"{path} is a {kind}, which would not arrive as one")
        self.hint = _remedy(value)


def encode(value: Any, content_type: str | None = None) -> tuple[bytes, str]:
    """(bytes, content type). If a content type is given it is used: JSON then writes types that it lacks as text.

    Raises one of `NOT_ENCODED`.
    """
    if content_type == MSGPACK:
        return encode_result(value), MSGPACK
    try:
        raw = _to_json(value)
    except TypeError:  # perhaps a key that JSON does not have
        if content_type is not None:
            raise
        return encode_result(value), MSGPACK
    # The encoder writes NaN and infinities as null; only a payload with a null can hide one.
    if b"null" in raw and not finite(msgspec.to_builtins(value)):
        raise ValueError("it holds NaN or an infinity")
    if content_type is None and find_change(value, _from_json(raw)) is not None:
        return encode_result(value), MSGPACK
    return raw, JSON


def encode_simple(values: Sequence[Any]) -> tuple[list[bytes], list[Any]] | None:
    """`encode` a batch as JSON in half the time: (texts, the values that they decode to).

    None if JSON does not keep all values: encode them one by one.
    """
    if not _JSON_KINDS.issuperset(map(type, values)):
        return None
    try:
        raws = [_to_json(value) for value in values]
        decoded = [_from_json(raw) for raw in raws]
        return (raws, decoded) if decoded == values else None
    except NOT_ENCODED:
        return None


def pack_body(body: Body) -> bytes:
    """The fields in their order, without the defaults at the end: most messages have many. See `unpack_body`."""
    values = msgspec.structs.astuple(body)
    used = len(values)
    for value, default in zip(reversed(values), _LAST_DEFAULTS, strict=False):
        if value != default:
            break
        used -= 1
    return _to_msgpack(values[:used])


def pack_payload(type: str, payload: bytes, content_type: str) -> bytes:
    """`pack_body` of a body that has only these fields."""
    return _to_msgpack((type, payload) if content_type == JSON else (type, payload, content_type))


def pack_pairs(
    type: str, payload: bytes, content_type: str, headers: dict[str, str] | None, labels: dict[str, str] | None
) -> bytes:
    """`pack_body` of a body that has only these fields, in a tenth of the time."""
    if labels is not None:
        return _to_msgpack((type, payload, content_type, 0, headers, labels))
    if headers is not None:
        return _to_msgpack((type, payload, content_type, 0, headers))
    return pack_payload(type, payload, content_type)


_ARRAY = 0x90
_FEW_FIELDS = (_ARRAY + 2, _ARRAY + 3)


def has_pairs_only(packed: bytes) -> bool:
    """True if a packed body has no field but type, payload and content type, so that `pack_pairs` can add to it."""
    return packed[0] in _FEW_FIELDS


def encode_result(value: Any) -> bytes:
    """The value as MessagePack. Raises one of `NOT_ENCODED`."""
    return pack(value, _to_msgpack, _from_msgpack)


def pack(value: Any, to_bytes: Callable[[Any], bytes], from_bytes: Callable[[bytes], Any]) -> bytes:
    """The value as bytes. Raises `NotKept` if it would be another one after decoding."""
    raw = to_bytes(value)
    change = find_change(value, from_bytes(raw))
    if change is not None:
        raise NotKept(*change)
    return raw


def find_change(sent: Any, arrived: Any) -> tuple[str, Any] | None:
    """(path, value) of the first value that arrived as another one. Conversions by annotations are no change."""
    if arrived == sent:  # nearly always
        return None
    found: list[tuple[str, Any, Any]] = [("$", sent, arrived)]
    for path, one, other in found:  # grows in the loop; no recursion, because values may be nested deeply
        if other == one:
            continue
        if isinstance(one, enum.Enum):
            found.append((path, one.value, other))
        elif isinstance(one, dict) and isinstance(other, dict):
            for key, inner in one.items():
                if key not in other:
                    return f"the key {key!r:.60} of {path}", key
                found.append((f"{path}[{key!r:.60}]", inner, other[key]))
        elif isinstance(one, list | tuple) and isinstance(other, list | tuple):
            found.extend((f"{path}[{i}]", *pair) for i, pair in enumerate(zip(one, other, strict=False)))
        elif isinstance(one, _CHANGED):
            if isinstance(other, str | list):
                return path, one
        else:
            found.extend((f"{path}.{name}", *pair) for name, *pair in _fields(one, other))
    return None


def _fields(one: Any, other: Any) -> Iterator[tuple[str, Any, Any]]:
    """(name, sent, arrived) of the fields of a Struct, dataclass or attrs class; nothing for other values."""
    if isinstance(one, msgspec.Struct):
        names, written = one.__struct_fields__, one.__struct_encode_fields__
        if isinstance(other, list):  # after the tag, if there is one
            yield from zip(names, msgspec.structs.astuple(one), other[-len(names) :], strict=False)
            return
    elif dataclasses.is_dataclass(one):
        names = written = tuple(field.name for field in dataclasses.fields(one))
    else:
        names = written = tuple(field.name for field in getattr(one, "__attrs_attrs__", ()))
    for name, key in zip(names, written, strict=True):
        arrived = other.get(key, msgspec.UNSET) if isinstance(other, dict) else getattr(other, name, msgspec.UNSET)
        if arrived is not msgspec.UNSET:
            yield name, getattr(one, name), arrived


def _remedy(value: Any) -> str:
    if isinstance(value, datetime):
        return "give it a time zone, such as datetime.now(UTC)"
    if isinstance(value, set | frozenset):
        return "pass a list, such as sorted(value)"
    if isinstance(value, timedelta):
        return "pass value.total_seconds()"
    if isinstance(value, date | time):
        return "pass value.isoformat()"
    return "pass str(value)"


def finite(value: Any) -> bool:
    """True if it contains no NaN and no infinity: JSON has neither."""
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, dict):
        return all(finite(entry) for pair in value.items() for entry in pair)
    return not isinstance(value, list | tuple | set | frozenset) or all(finite(entry) for entry in value)
