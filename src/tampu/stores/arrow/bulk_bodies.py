"""Unpacks the bodies of many simple messages with array operations, not one by one.

A simple body is packed as two or three values: type, payload and, if it is not JSON, the content type.
"""

from __future__ import annotations

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tampu.model.message import JSON
from tampu.stores.arrow.numbers import Numbers

_TWO, _THREE = 0x92, 0x93
_STR8 = 0xD9
_BINARY = {0xC4: 1, 0xC5: 2, 0xC6: 4}
"""Size of a payload's length field, by first byte."""
_PARTS = 6
_MOST = (1 << 31) - 1


class Plain(msgspec.Struct, frozen=True):
    type: pa.Array
    payload: pa.Array
    content_type: pa.Array


def unpack(joined: bytes | pa.Buffer, ends: Numbers) -> Plain | None:
    """Unpack concatenated bodies; ``ends`` is where each ends. None if not all bodies are simple."""
    count = len(ends)
    if len(joined) > _MOST:
        return None
    data = np.frombuffer(joined, np.uint8)
    starts = np.concatenate(([0], ends[:-1]))
    fields = data[starts]
    if not ((fields == _TWO) | (fields == _THREE)).all():
        return None
    kind = _text(data, starts + 1)
    if kind is None:
        return None
    kind_start, kind_end = kind
    payload_start, length = _payload(data, kind_end)
    payload_end = payload_start + length
    content_start = ends
    three = fields == _THREE
    if three.any():
        content = _text(data, np.where(three, payload_end, starts + 1))
        if content is None:
            return None
        content_start = np.where(three, content[0], ends)
    # Each body is cut into six consecutive parts; those between the values are skipped.
    cuts = np.empty((count, _PARTS), np.int32)
    for at, places in enumerate((starts, kind_start, kind_end, payload_start, payload_end, content_start)):
        cuts[:, at] = places
    buffers = [None, pa.py_buffer(np.append(cuts.ravel(), np.int32(len(joined)))), pa.py_buffer(joined)]
    parts = pa.Array.from_buffers(pa.binary(), count * _PARTS, buffers)
    texts = pa.Array.from_buffers(pa.string(), count * _PARTS, buffers)
    places = np.arange(0, count * _PARTS, _PARTS)
    content_type = pa.repeat(pa.scalar(JSON, pa.string()), count)
    if three.any():
        given = texts.take(pa.array(places + 5))
        content_type = given if three.all() else pc.if_else(pa.array(three), given, content_type)
    return Plain(texts.take(pa.array(places + 1)), parts.take(pa.array(places + 3)), content_type)


def _text(data: npt.NDArray[np.uint8], at: Numbers) -> tuple[Numbers, Numbers] | None:
    """(start, end) of texts; None if one is longer than 255 bytes."""
    first = data[at]
    short = (first & 0xE0) == 0xA0
    if short.all():
        return at + 1, at + 1 + (first & 0x1F)
    if not (short | (first == _STR8)).all():
        return None
    start = np.where(short, at + 1, at + 2)
    return start, start + np.where(short, first & 0x1F, data[at + 1])


def _payload(data: npt.NDArray[np.uint8], at: Numbers) -> tuple[Numbers, Numbers]:
    """(start, length) of bytes."""
    first = data[at]
    start, length = at.copy(), np.zeros(len(at), np.int64)
    for code, size in _BINARY.items():
        these = first == code
        if these.any():
            begin = at[these] + 1
            value = np.zeros(len(begin), np.int64)
            for place in range(size):
                value = value << 8 | data[begin + place]
            start[these], length[these] = begin + size, value
    return start, length
