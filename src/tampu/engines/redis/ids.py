"""Numbers and ids.

A message's number in its queue has 16 hexadecimal digits: 11 of milliseconds since 1970 and 5 of a counter in steps
of two. Its id is a UUIDv7 made of the number and a tail of 54 bits that identifies the queue, so an id leads to its
queue. Odd numbers mark messages whose id the user gave; those are looked up by id.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

_TAIL = (1 << 54) - 1
_MOST_STARTS = 4096
DIGITS = 16


def tail_of(tenant: str, queue: str, salt: int) -> int:
    """54 bits that identify a queue. Another salt is used if another queue has them already."""
    text = f"{tenant}/{queue}" if not salt else f"{tenant}/{queue}/{salt}"
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest()) & _TAIL


class _Starts(dict[str, str]):
    """Cache of the first half of ids, by the first 14 digits of the number; a batch has few different ones."""

    def __missing__(self, high: str) -> str:
        if len(self) >= _MOST_STARTS:
            self.clear()
        start = self[high] = f"0{high[:7]}-{high[7:11]}-7{high[11:]}"
        return start


class Ids:
    """Makes the ids of one queue from cached parts."""

    def __init__(self, tail: int) -> None:
        self.tail = tail
        variant, end = 0x8000 | tail >> 48, f"{tail & 0xFFFF_FFFF_FFFF:012x}"
        self._ends = {f"{low:02x}": f"-{variant | low << 6:04x}-{end}" for low in range(256)}
        self._starts = _Starts()

    def of(self, seq: str) -> str:
        return self._starts[seq[:14]] + self._ends[seq[14:]]

    def many(self, seqs: Iterable[str]) -> list[str]:
        starts, ends = self._starts, self._ends
        return [starts[seq[:14]] + ends[seq[14:]] for seq in seqs]


def series(first: str, count: int) -> list[str]:
    """``count`` numbers from the first on, as `publish_simple.lua` assigns them."""
    prefix, no = first[:11], int(first[11:], 16)
    return [f"{prefix}{n:05x}" for n in range(no, no + 2 * count, 2)]


def cut(text: str) -> list[str]:
    """Split concatenated numbers."""
    return [text[i : i + DIGITS] for i in range(0, len(text), DIGITS)]


def parse(id: str) -> tuple[int, str] | None:
    """(tail, number) of an id that tampu made; None for any other id."""
    value = int(id.replace("-", ""), 16)
    if value >> 124 or value >> 76 & 0xF != 7 or value >> 62 & 3 != 2:
        return None
    seq = (value >> 80) << 20 | (value >> 64 & 0xFFF) << 8 | (value >> 54 & 0xFF)
    return None if seq & 1 else (value & _TAIL, f"{seq:016x}")


def is_own(seq: str) -> bool:
    """True if the user gave the id."""
    return int(seq[-1], 16) & 1 == 1
