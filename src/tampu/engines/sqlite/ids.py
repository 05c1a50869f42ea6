"""Sequence numbers, the ids made from them, and the journal records with both.

A sequence number is milliseconds since 1970 shifted by 20 bits, plus a counter in steps of two. It only grows, also
when the clock goes back. The id of a message is a UUIDv7. Its time and counter are the sequence number; six of its last
54 bits are the same for the whole file, the other 48 are a secret tail (`encoding.secret_tails`). So each is
computed from the other, ids need no index, and nobody else can make one. Up to schema 4 all 54 bits were the same for
the whole file. An odd sequence number marks a message whose id was given by the user and is stored with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from tampu.engines.encoding import BLOCK, BLOCK_BITS, Parsed, Record, folded, id_bytes, id_text, pack_seqs, secret_tails
from tampu.engines.sql.queue_registry import QueueRegistry

if TYPE_CHECKING:
    from tampu.engines.sqlite.database import Db

_pack = msgspec.msgpack.Encoder().encode
STEP = 2
_LOW = BLOCK - 1
_MOST_BLOCKS = 4096
TAIL_BYTES = 6


def floor(now_us: int) -> int:
    """The first sequence number of this millisecond."""
    return now_us // 1000 << 20


def own_id(seq: int) -> bool:
    """True if the id was given by the user."""
    return bool(seq & 1)


class Ids:
    """Makes the ids of one file from cached parts: a fifth of the cost of formatting each."""

    ahead: int | None = None

    def __init__(self, tail: int, secret: bytes, since: int) -> None:
        self.tail = tail
        self.secret = secret
        self.since = since
        """Up to this number, ids end with the tail of the file."""
        self._old_end = f"{tail & 0xFFFF_FFFF_FFFF:012x}"
        middles = [f"-{0x8000 | low << 6 | tail >> 48:04x}-" for low in range(BLOCK)]
        self._parts = [(middle, slice(low // 2 * 12, low // 2 * 12 + 12)) for low, middle in enumerate(middles)]
        self._blocks: dict[int, tuple[str, str]] = {}
        """By all but the last eight bits of the number: the start of the ids and their tails, as far as needed."""

    def _block(self, number: int, low: int) -> tuple[str, str]:
        """The start of the ids of a block, and their tails at least up to that of ``low``."""
        start, tails = self._blocks.get(number, ("", ""))
        if len(tails) < low // 2 * 12 + 12:
            if len(self._blocks) >= _MOST_BLOCKS:
                self._blocks.clear()
            text = f"{number:015x}"
            start = f"{text[:8]}-{text[8:12]}-7{text[12:]}"
            tails = secret_tails(self.secret, number, low // 2 * 6 + 6).hex()
            self._blocks[number] = start, tails
        return start, tails

    def of(self, _stamp: int, seq: int) -> str:
        low = seq & _LOW
        start, tails = self._block(seq >> BLOCK_BITS, low)
        middle, place = self._parts[low]
        return start + middle + (tails[place] if seq > self.since else self._old_end)

    def many(self, _stamps: Sequence[int], seqs: Sequence[int]) -> list[str]:
        if len(seqs) < 2 or seqs[0] <= self.since or not _evenly_spaced(seqs):
            return [self.of(0, seq) for seq in seqs]
        first, last = seqs[0], seqs[-1]
        made: list[str] = []
        for block in range(first >> BLOCK_BITS, (last >> BLOCK_BITS) + 1):
            low = first & _LOW if block == first >> BLOCK_BITS else first & 1
            high = last & _LOW if block == last >> BLOCK_BITS else _LOW
            start, tails = self._block(block, high)
            made += [start + middle + tails[place] for middle, place in self._parts[low : high + 1 : STEP]]
        return made

    def seq_of(self, id: str) -> Parsed | None:
        value = int(id.replace("-", ""), 16)
        if value >> 48 & 0x3F != self.tail >> 48 or value >> 76 & 0xF != 7 or value >> 62 & 3 != 2:
            return None
        seq = (value >> 80) << 20 | (value >> 64 & 0xFFF) << 8 | (value >> 54 & 0xFF)
        if own_id(seq) or seq >> 63 or int(self.of(0, seq)[-12:], 16) != value & 0xFFFF_FFFF_FFFF:
            return None
        return Parsed(seq >> 20, seq)

    def given(self, seq: int) -> int:
        return seq + 1


def _evenly_spaced(seqs: Sequence[int]) -> bool:
    """True if the numbers follow each other, as those of a batch do."""
    even = range(seqs[0], seqs[0] + STEP * len(seqs), STEP)
    return seqs == even if isinstance(seqs, range) else seqs[-1] == even[-1] and list(seqs) == list(even)


def take_numbers(db: Db, count: int) -> range:
    """New, growing sequence numbers."""
    first = max(db.last + STEP, floor(db.now)) & ~1
    db.last = first + (count - 1) * STEP
    return range(first, db.last + 1, STEP)


class SqliteRecord(Record):
    """Without times, and with the ids that users gave as texts."""

    __slots__ = ()

    def packed(self, verb: str, state: int | None, worker: str | None) -> bytes:
        own = None
        if self.own:
            own = [id_text(self.own[i]) if i in self.own else None for i in range(len(self.seqs))]
        types = folded(self.types) if self.types else None
        seqs = pack_seqs(self.seqs)
        return _pack((verb, state, worker, seqs, folded(self.attempts), types, self.details or None, own))

    @staticmethod
    def unpacked(body: bytes) -> tuple[Any, ...]:
        verb, state, worker, seqs, attempts, types, details, own = msgspec.msgpack.decode(body)
        given = {i: id_bytes(id) for i, id in enumerate(own or ()) if id}
        return verb, state, worker, seqs, 0, attempts, types, details, given


class SqliteRegistry(QueueRegistry):
    id: Ids
    record = SqliteRecord
