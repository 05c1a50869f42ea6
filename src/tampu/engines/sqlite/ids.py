"""Sequence numbers and ids.

A sequence number is milliseconds since 1970 shifted by 20 bits, plus a counter of steps of two; it only grows, also
when the clock goes back. The id of a message is a UUIDv7 whose time and counter are the sequence number and whose
last 54 bits are drawn once per file, so either is computed from the other and no index of ids is needed. Odd
sequence numbers mark messages whose id was given by the user and is stored with them.
"""

from __future__ import annotations

STEP = 2
_TAIL = (1 << 54) - 1


def floor(now_us: int) -> int:
    """The first sequence number of this millisecond."""
    return now_us // 1000 << 20


def own_id(seq: int) -> bool:
    """Was the id given by the user?"""
    return bool(seq & 1)


class Ids:
    """Makes the ids of one file; messages of a batch share most of it, so the parts are kept."""

    def __init__(self, tail: int) -> None:
        self.tail = tail
        self._variant = 0x8000 | tail >> 48
        self._end = f"{tail & 0xFFFF_FFFF_FFFF:012x}"
        self._time = (-1, "")

    def of(self, seq: int) -> str:
        millis = seq >> 20
        known, start = self._time
        if known != millis:
            text = f"{millis:012x}"
            start = f"{text[:8]}-{text[8:]}-7"
            self._time = (millis, start)
        return f"{start}{seq >> 8 & 0xFFF:03x}-{self._variant | (seq & 0xFF) << 6:04x}-{self._end}"


def seq_of(id: str, tail: int) -> int | None:
    """The sequence number an id of this file was made from; None for any other id."""
    value = int(id.replace("-", ""), 16)
    if value & _TAIL != tail or value >> 76 & 0xF != 7 or value >> 62 & 3 != 2:
        return None
    seq = (value >> 80) << 20 | (value >> 64 & 0xFFF) << 8 | (value >> 54 & 0xFF)
    return None if own_id(seq) or seq >> 63 else seq


def id_bytes(id: str) -> bytes:
    return bytes.fromhex(id.replace("-", ""))


def id_text(raw: bytes) -> str:
    text = raw.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
