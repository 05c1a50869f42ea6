"""Ids of messages: UUIDv7, computed.

An id is made of the publish time in milliseconds, the sequence number (52 bits) and a random tail that is fixed per
schema (22 bits). So a message is found by its id without an index of ids, and (stamp, number) gives the id.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

BLOCK = 1024
"""Numbers in one block: the INCREMENT of the sequence."""
TAIL_BITS = 22
_LOW_BITS = 26
_LOW = (1 << _LOW_BITS) - 1
_TAIL = (1 << TAIL_BITS) - 1


class IdScheme(Protocol):
    """Computes the ids of one store."""

    def __init__(self, tail: int) -> None: ...

    def of(self, stamp: int, seq: int) -> str:
        """The id of the message with this number, published at ``stamp`` (milliseconds)."""
        ...

    def many(self, stamps: Sequence[int], seqs: Sequence[int]) -> list[str]: ...

    def seq_of(self, id: str) -> tuple[int, int] | None:
        """(stamp, seq) of an id of this store; None for any other id."""
        ...

    def given(self, seq: int) -> int:
        """The number of a message whose id the user gives, from a new number."""
        ...

    ahead: int | None
    """An id with a number further ahead of the newest than this is not of this store, though it has its form: another
    program made it. None: that does not happen."""


class Ids:
    """Computes the ids of one schema. The first part of an id is mostly the same for a whole batch and is made once."""

    ahead: int | None = 1 << 36
    """One in four million of the UUIDv7 of others has our tail; one in 2^38 has such a number too."""

    def __init__(self, tail: int) -> None:
        self.tail = tail

    def of(self, stamp: int, seq: int) -> str:
        return f"{_start(stamp, seq >> _LOW_BITS)}{(seq & _LOW) << TAIL_BITS | self.tail:012x}"

    def many(self, stamps: Sequence[int], seqs: Sequence[int]) -> list[str]:
        tail = self.tail
        if not seqs:
            return []
        stamp, high = stamps[0], seqs[0] >> _LOW_BITS
        start = _start(stamp, high)
        if stamps.count(stamp) == len(stamps) and high == min(seqs) >> _LOW_BITS == max(seqs) >> _LOW_BITS:
            return [f"{start}{(seq & _LOW) << TAIL_BITS | tail:012x}" for seq in seqs]
        made = []
        for new, seq in zip(stamps, seqs, strict=True):
            if new != stamp or seq >> _LOW_BITS != high:
                stamp, high = new, seq >> _LOW_BITS
                start = _start(stamp, high)
            made.append(f"{start}{(seq & _LOW) << TAIL_BITS | tail:012x}")
        return made

    def seq_of(self, id: str) -> tuple[int, int] | None:
        value = int(id.replace("-", ""), 16)
        if value & _TAIL != self.tail or value >> 76 & 0xF != 7 or value >> 62 & 3 != 2:
            return None
        return value >> 80, (value >> 64 & 0xFFF) << 40 | (value >> TAIL_BITS & (1 << 40) - 1)

    def given(self, seq: int) -> int:
        return seq


def _start(stamp: int, high: int) -> str:
    time = f"{stamp:012x}"
    return f"{time[:8]}-{time[8:]}-7{high >> 14:03x}-{0x8000 | high & 0x3FFF:04x}-"
