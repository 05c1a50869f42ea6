"""Ids of messages: UUIDv7, computed.

An id is made of the publish time in milliseconds, the sequence number (52 bits) and a secret tail (22 bits, see
`tampu.engines.secret_tails`). So a message is found by its id without an index of ids, (stamp, number) gives the id,
and nobody else can make one. Earlier versions of the schema had the same tail in all ids.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from tampu.engines import secret_tails

BLOCK = 1024
"""Numbers in one block: the INCREMENT of the sequence."""
TAIL_BITS = 22
TAIL_BYTES = 4
"""How much of the stream of a block each tail takes."""
_MOST_BLOCKS = 4096
_LOW_BITS = 26
_LOW = (1 << _LOW_BITS) - 1
_TAIL = (1 << TAIL_BITS) - 1


class Parsed(NamedTuple):
    """The parts of an id that this store made."""

    stamp: int
    """When it was published, in milliseconds."""
    seq: int


class IdScheme(Protocol):
    """Computes the ids of one store."""

    tail: int
    secret: bytes
    since: int
    """Up to this number, ids end with the tail."""

    def of(self, stamp: int, seq: int) -> str:
        """The id of the message with this number, published at ``stamp`` (milliseconds)."""
        ...

    def many(self, stamps: Sequence[int], seqs: Sequence[int]) -> list[str]: ...

    def seq_of(self, id: str) -> Parsed | None:
        """Read an id of this store; None for any other id."""
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

    def __init__(self, tail: int, secret: bytes, since: int) -> None:
        self.tail = tail
        self.secret = secret
        self.since = since
        """Up to this number, ids end with the tail of the schema."""
        self._blocks: dict[int, tuple[int, ...]] = {}

    def _tail(self, seq: int) -> int:
        """The last bits of an id."""
        if seq <= self.since:
            return self.tail
        block, low = seq >> secret_tails.BLOCK_BITS, seq & secret_tails.BLOCK - 1
        tails = self._blocks.get(block, ())
        if len(tails) <= low:
            if len(self._blocks) >= _MOST_BLOCKS:
                self._blocks.clear()
            raw = secret_tails.stream(self.secret, block, (low + 1) * TAIL_BYTES)
            tails = self._blocks[block] = struct.unpack(f">{len(raw) // TAIL_BYTES}I", raw)
        return tails[low] & _TAIL

    def of(self, stamp: int, seq: int) -> str:
        return f"{_start(stamp, seq >> _LOW_BITS)}{(seq & _LOW) << TAIL_BITS | self._tail(seq):012x}"

    def many(self, stamps: Sequence[int], seqs: Sequence[int]) -> list[str]:
        made = []
        stamp = high = start = None
        for new, seq in zip(stamps, seqs, strict=True):
            if new != stamp or seq >> _LOW_BITS != high:
                stamp, high = new, seq >> _LOW_BITS
                start = _start(stamp, high)
            made.append(f"{start}{(seq & _LOW) << TAIL_BITS | self._tail(seq):012x}")
        return made

    def seq_of(self, id: str) -> Parsed | None:
        value = int(id.replace("-", ""), 16)
        seq = (value >> 64 & 0xFFF) << 40 | (value >> TAIL_BITS & (1 << 40) - 1)
        if value >> 76 & 0xF != 7 or value >> 62 & 3 != 2 or value & _TAIL != self._tail(seq):
            return None
        return Parsed(value >> 80, seq)

    def given(self, seq: int) -> int:
        return seq


def _start(stamp: int, high: int) -> str:
    time = f"{stamp:012x}"
    return f"{time[:8]}-{time[8:]}-7{high >> 14:03x}-{0x8000 | high & 0x3FFF:04x}-"
