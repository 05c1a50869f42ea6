"""Numbers and ids.

A message's number in its queue has 16 hexadecimal digits: 11 of milliseconds since 1970 and 5 of a counter in steps
of two. Its id is a UUIDv7 made of the number, 22 bits that lead to the queue (the start of its *tail*), and a secret
tail of 32 bits (`encoding.secret_tails`). So an id leads to its message, and nobody else can make one. Up to
layout 4 an id ended with the whole tail of its queue, 54 bits. Odd numbers mark messages whose id the user gave; those
are looked up by id.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from tampu.engines.encoding import BLOCK, secret_tails

_TAIL = (1 << 54) - 1
_MOST_BLOCKS = 4096
TAIL_BYTES = 4
DIGITS = 16


def tail_of(tenant: str, queue: str, salt: int, secret: bytes) -> int:
    """54 bits that identify a queue. Another salt is used if another queue has them already."""
    text = f"{tenant}/{queue}" if not salt else f"{tenant}/{queue}/{salt}"
    return int.from_bytes(hashlib.blake2b(text.encode(), key=secret, digest_size=8).digest()) & _TAIL


class Ids:
    """Makes the ids of one queue from cached parts."""

    def __init__(self, tail: int, secret: bytes, since: str) -> None:
        self.tail = tail
        self.secret = secret + tail.to_bytes(7, "big")
        self.since = since
        """Up to this number, ids end with the tail of the queue."""
        variant, end = 0x8000 | tail >> 48, f"{tail & 0xFFFF_FFFF_FFFF:012x}"
        self._old_end = end[4:]
        self._parts = {
            f"{low:02x}": (f"-{variant | low << 6:04x}-{end[:4]}", low // 2 * 8, low // 2 * 8 + 8)
            for low in range(BLOCK)
        }
        self._blocks: dict[str, tuple[str, str]] = {}
        """By the first 14 digits of the number: the start of the ids and their tails, as far as needed."""

    def of(self, seq: str) -> str:
        (id,) = self.many((seq,))
        return id

    def many(self, seqs: Iterable[str]) -> list[str]:
        made, blocks, parts, since = [], self._blocks, self._parts, self.since
        start = tails = ""
        for seq in seqs:
            middle, begin, end = parts[seq[14:]]
            start, tails = blocks.get(seq[:14], ("", ""))
            if len(tails) < end:
                start, tails = self._block(seq[:14], end)
            made.append(start + middle + (tails[begin:end] if seq > since else self._old_end))
        return made

    def _block(self, high: str, digits: int) -> tuple[str, str]:
        """The common start of a block's ids, and their tails as at least ``digits`` hexadecimal digits."""
        if len(self._blocks) >= _MOST_BLOCKS:
            self._blocks.clear()
        tails = secret_tails(self.secret, int(high, 16), digits // 2).hex()
        found = self._blocks[high] = f"0{high[:7]}-{high[7:11]}-7{high[11:]}", tails
        return found

    def number(self, id: str) -> str | None:
        """The number of an id of this queue; None for any other id."""
        _, number = parse(id) or (None, None)
        return None if number is None or self.of(number) != id else number


def series(first: str, count: int) -> list[str]:
    """``count`` numbers from the first on, as `publish_simple.lua` assigns them."""
    prefix, no = first[:11], int(first[11:], 16)
    return [f"{prefix}{n:05x}" for n in range(no, no + 2 * count, 2)]


def cut(text: str) -> list[str]:
    """Split concatenated numbers."""
    return [text[i : i + DIGITS] for i in range(0, len(text), DIGITS)]


def parse(id: str) -> tuple[int, str] | None:
    """(the last 54 bits, number) of an id that has the form of those that tampu makes; None for any other id."""
    value = int(id.replace("-", ""), 16)
    if value >> 124 or value >> 76 & 0xF != 7 or value >> 62 & 3 != 2:
        return None
    seq = (value >> 80) << 20 | (value >> 64 & 0xFFF) << 8 | (value >> 54 & 0xFF)
    return None if seq & 1 else (value & _TAIL, f"{seq:016x}")


def is_own(seq: str) -> bool:
    """True if the user gave the id."""
    return int(seq[-1], 16) & 1 == 1
