"""Decoders, made one at a time.

The first time msgspec meets a struct it looks at the fields, and it lets other threads run meanwhile. One of them that
meets the same struct then finds it half known, and the process crashes. So whatever is read into structs is made known
here, behind one lock: at import where it can be. A decoder that is made may be used by all threads at once.
"""

from __future__ import annotations

import threading
from typing import Any, TypeVar, overload

import msgspec

T = TypeVar("T")

_turn = threading.Lock()


@overload
def from_json(type: type[T], **more: Any) -> msgspec.json.Decoder[T]: ...
@overload
def from_json(type: Any, **more: Any) -> msgspec.json.Decoder[Any]: ...
def from_json(type: Any, **more: Any) -> msgspec.json.Decoder[Any]:
    with _turn:
        return msgspec.json.Decoder(type, **more)


@overload
def from_msgpack(type: type[T], **more: Any) -> msgspec.msgpack.Decoder[T]: ...
@overload
def from_msgpack(type: Any, **more: Any) -> msgspec.msgpack.Decoder[Any]: ...
def from_msgpack(type: Any, **more: Any) -> msgspec.msgpack.Decoder[Any]:
    with _turn:
        return msgspec.msgpack.Decoder(type, **more)


def convert(value: Any, type: type[T], *, strict: bool = True) -> T:
    """What plain values make."""
    if type not in _known:
        with _turn:
            msgspec.json.Decoder(type)
        _known.add(type)
    return msgspec.convert(value, type, strict=strict)


_known: set[Any] = set()
