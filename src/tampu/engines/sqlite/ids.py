"""Sequence numbers and ids.

A sequence number is milliseconds since 1970 shifted by 20 bits, plus a counter of steps of two; it only grows, also
when the clock goes back. The id of a message is a UUIDv7 whose time and counter are the sequence number and whose
last 54 bits are drawn once per file, so either is computed from the other and no index of ids is needed. Odd
sequence numbers mark messages whose id was given by the user and is stored with them.
"""

from __future__ import annotations

STEP = 2
_COUNTER = (1 << 20) - 1
_TAIL = (1 << 54) - 1


def floor(now_us: int) -> int:
    """The first sequence number of this millisecond."""
    return now_us // 1000 << 20


def own_id(seq: int) -> bool:
    """Was the id given by the user?"""
    return bool(seq & 1)


def id_of(seq: int, tail: int) -> str:
    count = seq & _COUNTER
    value = (seq >> 20) << 80 | 7 << 76 | (count >> 8) << 64 | 2 << 62 | (count & 0xFF) << 54 | tail
    text = f"{value:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def seq_of(id: str, tail: int) -> int | None:
    """The sequence number an id of this file was made from; None for any other id."""
    value = int(id.replace("-", ""), 16)
    if value & _TAIL != tail or value >> 76 & 0xF != 7 or value >> 62 & 3 != 2:
        return None
    seq = (value >> 80) << 20 | (value >> 64 & 0xFFF) << 8 | (value >> 54 & 0xFF)
    return None if own_id(seq) else seq


def id_bytes(id: str) -> bytes:
    return bytes.fromhex(id.replace("-", ""))


def id_text(raw: bytes) -> str:
    text = raw.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
