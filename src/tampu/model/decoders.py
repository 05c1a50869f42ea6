"""Creates decoders for structs, one at a time.

The first time msgspec sees a struct it inspects the fields, and other threads may run meanwhile. If one of them uses
the same struct, the process crashes. So all decoders are created here, behind one lock, if possible at import. All
threads may use a decoder once it is created.
"""

from __future__ import annotations

import threading
from typing import Any, TypeVar, overload

import msgspec

T = TypeVar("T")

_lock = threading.Lock()


@overload
def from_json(type: type[T], **more: Any) -> msgspec.json.Decoder[T]: ...
@overload
def from_json(type: Any, **more: Any) -> msgspec.json.Decoder[Any]: ...
def from_json(type: Any, **more: Any) -> msgspec.json.Decoder[Any]:
    with _lock:
        return msgspec.json.Decoder(type, **more)


@overload
def from_msgpack(type: type[T], **more: Any) -> msgspec.msgpack.Decoder[T]: ...
@overload
def from_msgpack(type: Any, **more: Any) -> msgspec.msgpack.Decoder[Any]: ...
def from_msgpack(type: Any, **more: Any) -> msgspec.msgpack.Decoder[Any]:
    with _lock:
        return msgspec.msgpack.Decoder(type, **more)


def convert(value: Any, type: type[T], *, strict: bool = True) -> T:
    """Like `msgspec.convert`."""
    if type not in _known:
        with _lock:
            msgspec.json.Decoder(type)
        _known.add(type)
    return msgspec.convert(value, type, strict=strict)


_known: set[Any] = set()
