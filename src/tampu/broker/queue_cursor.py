"""Cursors of lists that walk several queues: a queue and a place in one of its indexes, so pages do not slow down."""

from __future__ import annotations

import base64
import binascii
from typing import Any

import msgspec

from tampu.model.decoders import from_msgpack
from tampu.model.errors import InvalidMessage

MOST_CHARACTERS = 2000
_decode = from_msgpack(tuple[str, tuple[int | str, ...]]).decode


def write(queue: str, inner: tuple[Any, ...] | None) -> str:
    return base64.urlsafe_b64encode(msgspec.msgpack.encode((queue, inner or ()))).decode().rstrip("=")


def read(text: str | None, what: str) -> tuple[str, tuple[Any, ...]]:
    """(queue, place in its index); the beginning without a cursor. Raises `InvalidMessage`."""
    if text is None:
        return "", ()
    try:
        if not isinstance(text, str) or len(text) > MOST_CHARACTERS:
            raise ValueError
        queue, inner = _decode(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        if any(isinstance(value, int) and not -(1 << 63) <= value < 1 << 63 for value in inner):
            raise ValueError
        return queue, inner
    except (TypeError, ValueError, binascii.Error, msgspec.MsgspecError):
        raise InvalidMessage(f"after is not a cursor of {what}", field="after") from None
