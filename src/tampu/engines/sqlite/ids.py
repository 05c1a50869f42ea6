"""Sequence numbers, the ids made from them, and the journal records with both.

A sequence number is milliseconds since 1970 shifted by 20 bits, plus a counter in steps of two. It only grows, also
when the clock goes back. The id of a message is a UUIDv7. Its time and counter are the sequence number; its last 54
bits are random, but the same for the whole file. So each is computed from the other, and ids need no index. An odd
sequence number marks a message whose id was given by the user and is stored with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from tampu.engines.encoding import Record, folded, id_bytes, id_text, pack_seqs
from tampu.engines.sql.queue_registry import QueueRegistry

if TYPE_CHECKING:
    from tampu.engines.sqlite.database import Db

_pack = msgspec.msgpack.Encoder().encode
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

    ahead: int | None = None

    def __init__(self, tail: int) -> None:
        self.tail = tail
        variant, end = 0x8000 | tail >> 48, f"{tail & 0xFFFF_FFFF_FFFF:012x}"
        self._ends = [f"-{variant | low << 6:04x}-{end}" for low in range(256)]
        self._starts = _Starts()
        self._end = end

    def of(self, _stamp: int, seq: int) -> str:
        return self._starts[seq >> 8] + self._ends[seq & 0xFF]

    def made(self, id: str) -> bool:
        """True if it could be a generated id of this file. See `seq_of`."""
        return id.endswith(self._end) and self.seq_of(id) is not None

    def many(self, _stamps: Sequence[int], seqs: Sequence[int]) -> list[str]:
        starts, ends = self._starts, self._ends
        return [starts[seq >> 8] + ends[seq & 0xFF] for seq in seqs]

    def seq_of(self, id: str) -> tuple[int, int] | None:
        seq = seq_of(id, self.tail)
        return None if seq is None else (seq >> 20, seq)

    def given(self, seq: int) -> int:
        return seq + 1


def seq_of(id: str, tail: int) -> int | None:
    """The sequence number of a generated id of this file; None for any other id."""
    value = int(id.replace("-", ""), 16)
    if value & _TAIL != tail or value >> 76 & 0xF != 7 or value >> 62 & 3 != 2:
        return None
    seq = (value >> 80) << 20 | (value >> 64 & 0xFFF) << 8 | (value >> 54 & 0xFF)
    return None if own_id(seq) or seq >> 63 else seq


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
    ids = Ids
    record = SqliteRecord
