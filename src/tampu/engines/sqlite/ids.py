"""Sequence numbers and ids.

A sequence number is milliseconds since 1970 shifted by 20 bits, plus a counter in steps of two. It only grows, also
when the clock goes back. The id of a message is a UUIDv7. Its time and counter are the sequence number; its last 54
bits are random, but the same for the whole file. So each is computed from the other, and ids need no index. An odd
sequence number marks a message whose id was given by the user and is stored with it.
"""

from __future__ import annotations

from collections.abc import Iterable

STEP = 2
_TAIL = (1 << 54) - 1
_MOST_STARTS = 4096


def floor(now_us: int) -> int:
    """The first sequence number of this millisecond."""
    return now_us // 1000 << 20


def own_id(seq: int) -> bool:
    """True if the id was given by the user."""
    return bool(seq & 1)


class _Starts(dict[int, str]):
    """The first half of ids, by all but the last eight bits of the number. The ids of a batch share a few."""

    def __missing__(self, high: int) -> str:
        if len(self) >= _MOST_STARTS:
            self.clear()
        text = f"{high:015x}"
        start = self[high] = f"{text[:8]}-{text[8:12]}-7{text[12:]}"
        return start


class Ids:
    """Makes the ids of one file from cached parts: a tenth of the cost of formatting each."""

    def __init__(self, tail: int) -> None:
        self.tail = tail
        variant, end = 0x8000 | tail >> 48, f"{tail & 0xFFFF_FFFF_FFFF:012x}"
        self._ends = [f"-{variant | low << 6:04x}-{end}" for low in range(256)]
        self._starts = _Starts()
        self._end = end

    def of(self, seq: int) -> str:
        return self._starts[seq >> 8] + self._ends[seq & 0xFF]

    def made(self, id: str) -> bool:
        """True if it could be a generated id of this file. See `seq_of`."""
        return id.endswith(self._end) and seq_of(id, self.tail) is not None

    def many(self, seqs: Iterable[int]) -> list[str]:
        starts, ends = self._starts, self._ends
        return [starts[seq >> 8] + ends[seq & 0xFF] for seq in seqs]


def seq_of(id: str, tail: int) -> int | None:
    """The sequence number of a generated id of this file; None for any other id."""
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
