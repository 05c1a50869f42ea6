"""How deeply a value is nested, found without decoding it."""

from __future__ import annotations

from itertools import accumulate

from tampu.model.errors import InvalidMessage
from tampu.model.message import MSGPACK

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
