"""How states, lists of sequence numbers, receipts, errors, journal records and ids are written down."""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from tampu.model.errors import InvalidMessage
from tampu.model.states import LIVE, State

STATES = tuple(State)
READY, DELAYED, LEASED, HELD, DONE, DEAD, CANCELLED, EXPIRED = range(8)
CODE = {state: code for code, state in enumerate(STATES)}
LIVE_KINDS = tuple(CODE[state] for state in LIVE)

PARTITION = "0"
"""The partition of a journal that has only one."""
MOST_RECORDS = 10_000
"""Records read for one page, so that a page costs the same when most of the journal belongs to other tenants."""

_RECEIPT = re.compile(r"/([0-7]?[0-9a-f]{1,15})\.([0-7]?[0-9a-f]{1,15})\Z")  # two numbers of 63 bits
_VARYING = re.compile(r"0x[0-9a-fA-F]+|[0-9a-fA-F]{8,}|\d+|'[^']*'|\"[^\"]*\"")


def pack_seqs(seqs: Sequence[int]) -> bytes:
    """Eight bytes for each number. Evenly spaced numbers, as in most batches, take 20 bytes in total."""
    if len(seqs) > 2:
        step = seqs[1] - seqs[0]
        if step and seqs[-1] - seqs[0] == step * (len(seqs) - 1):
            even = range(seqs[0], seqs[-1] + (1 if step > 0 else -1), step)
            if list(even) == list(seqs):
                return struct.pack(">qqI", seqs[0], step, len(seqs))
    return struct.pack(f">{len(seqs)}q", *seqs)


def unpack_seqs(raw: bytes) -> Sequence[int]:
    if len(raw) == 20:
        first, step, count = struct.unpack(">qqI", raw)
        return range(first, first + step * count, step)
    return struct.unpack(f">{len(raw) // 8}q", raw)


def as_json(seqs: Iterable[int]) -> str:
    """A list of numbers for ``json_each``, so that one statement moves a whole batch."""
    return f"[{','.join(map(str, seqs))}]"


def id_bytes(id: str) -> bytes:
    return bytes.fromhex(id.replace("-", ""))


def id_text(raw: bytes) -> str:
    text = raw.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def parse_receipt(text: str) -> tuple[int, int]:
    """(seq, lease) of a receipt, which is ``queue/seq.lease`` in hexadecimal."""
    found = _RECEIPT.search(text)
    if not found:
        raise InvalidMessage("this is not a receipt", field="receipt", hint="pass the receipt that claim returned")
    seq, lease = found.groups()
    return int(seq, 16), int(lease, 16)


def fingerprint(error: str) -> str:
    """The same for errors that differ only in numbers, addresses and quoted values."""
    return hashlib.blake2b(_VARYING.sub("?", error).encode(), digest_size=6).hexdigest()


# -- journal records of engines on tables

_pack = msgspec.msgpack.Encoder().encode


class Record:
    """What one verb does in a commit, column by column."""

    __slots__ = ("_own", "_owners", "attempts", "details", "own", "seqs", "stamps", "types")

    def __init__(self) -> None:
        self.seqs: list[int] = []
        self.stamps: list[int] = []
        self.attempts: list[int] = []
        self.types: list[str] = []
        self.details: list[str | None] = []
        self.own: dict[int, bytes] = {}
        """Ids given by the user, by position in the record."""
        self._own: list[bytes] = []
        self._owners = 0

    def add(self, seq: int, stamp: int, attempt: int, own: bytes | None = None, detail: str | None = None) -> None:
        if own is not None:
            self.own[len(self.seqs)] = own
        self.seqs.append(seq)
        self.stamps.append(stamp)
        self.attempts.append(attempt)
        if detail is not None or self.details:
            self.details.extend([None] * (len(self.seqs) - 1 - len(self.details)))
            self.details.append(detail)

    def extend(
        self, seqs: Sequence[int], stamps: Sequence[int], attempts: Sequence[int], types: list[str] | None = None
    ) -> None:
        self.seqs.extend(seqs)
        self.stamps.extend(stamps)
        self.attempts.extend(attempts)
        if types is not None:
            self.types.extend(types)

    def add_own(self, count: int, packed: bytes) -> None:
        """Add many ids given by the user: positions and ids as pairs in MessagePack."""
        self._own.append(packed)
        self._owners += count

    def _all_own(self) -> Any:
        if not self._own:
            return self.own or None
        self.add_own(len(self.own), b"".join(_pack(i) + _pack(id) for i, id in self.own.items()))
        return msgspec.Raw(b"\xdf" + self._owners.to_bytes(4, "big") + b"".join(self._own))

    def packed(self, verb: str, state: int | None, worker: str | None) -> bytes:
        """The record as bytes. A column whose values are all equal is written as a single value."""
        return _pack(
            (
                verb,
                state,
                worker,
                pack_seqs(self.seqs),
                folded(self.stamps),
                folded(self.attempts),
                folded(self.types) if self.types else None,
                self.details or None,
                self._all_own(),
            )
        )

    @staticmethod
    def unpacked(body: bytes) -> tuple[Any, ...]:
        """(verb, state, worker, packed seqs, stamps, attempts, types, details, ids given by the user by position)"""
        fields: tuple[Any, ...] = tuple(msgspec.msgpack.decode(body))
        return fields


def folded(values: list[Any]) -> Any:
    first = values[0]
    return first if values.count(first) == len(values) else values


# -- ids of messages
#
# An id ends with a secret tail: a pseudo-random function of the number of its message, under a secret of the store.
# Who knows some ids cannot guess another. The function is SHAKE-128 of the secret and a block of 256 numbers. The tails
# of a block are one stream of bytes, so a batch of consecutive numbers costs one hash, and a single message, the first
# of its block, costs the beginning of a stream.

BLOCK_BITS = 8
BLOCK = 1 << BLOCK_BITS
_AT_ONCE = 168
"""Bytes that SHAKE-128 makes at once."""
TAIL_BITS = 22
TAIL_BYTES = 4
"""How much of the stream of a block each tail takes."""
_MOST_BLOCKS = 4096
_LOW_BITS = 26
_LOW = (1 << _LOW_BITS) - 1
_TAIL = (1 << TAIL_BITS) - 1
_FEW = 8
"""So few ids are made one by one."""


def secret_tails(secret: bytes, block: int, size: int) -> bytes:
    """At least the first ``size`` bytes of the tails of a block."""
    return hashlib.shake_128(secret + block.to_bytes(8, "big")).digest(-(-size // _AT_ONCE) * _AT_ONCE)


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
    """Computes the ids of one schema of a database server.

    An id is a UUIDv7 made of the publish time in milliseconds, the sequence number (52 bits) and a secret tail (22
    bits). So a message is found by its id without an index of ids, (stamp, number) gives the id, and nobody else can
    make one. Earlier versions of the schema had the same tail in all ids. The first part of an id is mostly the same
    for a whole batch and is made once.
    """

    ahead: int | None = 1 << 36
    """One in four million of the UUIDv7 of others has our tail; one in 2^38 has such a number too."""

    def __init__(self, tail: int, secret: bytes, since: int) -> None:
        self.tail = tail
        self.secret = secret
        self.since = since
        """Up to this number, ids end with the tail of the schema."""
        self._blocks: dict[int, tuple[int, ...]] = {}

    def _tails(self, block: int, count: int) -> tuple[int, ...]:
        """At least the first ``count`` secret tails of a block, with bits to spare."""
        tails = self._blocks.get(block, ())
        if len(tails) < count:
            if len(self._blocks) >= _MOST_BLOCKS:
                self._blocks.clear()
            raw = secret_tails(self.secret, block, count * TAIL_BYTES)
            tails = self._blocks[block] = struct.unpack(f">{len(raw) // TAIL_BYTES}I", raw)
        return tails

    def _tail(self, seq: int) -> int:
        """The last bits of an id."""
        low = seq & BLOCK - 1
        return self.tail if seq <= self.since else self._tails(seq >> BLOCK_BITS, low + 1)[low] & _TAIL

    def of(self, stamp: int, seq: int) -> str:
        return f"{_start(stamp, seq >> _LOW_BITS)}{(seq & _LOW) << TAIL_BITS | self._tail(seq):012x}"

    def many(self, stamps: Sequence[int], seqs: Sequence[int]) -> list[str]:
        """Ids of one time and one block have most in common. Others are made by halves, in the end one by one."""
        count = len(seqs)
        if count <= _FEW:
            return [self.of(stamp, seq) for stamp, seq in zip(stamps, seqs, strict=True)]
        first, last = min(seqs), max(seqs)
        block = first >> BLOCK_BITS
        if first <= self.since or last >> BLOCK_BITS != block or stamps.count(stamps[0]) < count:
            half = count // 2
            return self.many(stamps[:half], seqs[:half]) + self.many(stamps[half:], seqs[half:])
        start, tails = _start(stamps[0], first >> _LOW_BITS), self._tails(block, (last & BLOCK - 1) + 1)
        return [f"{start}{(seq & _LOW) << TAIL_BITS | tails[seq & BLOCK - 1] & _TAIL:012x}" for seq in seqs]

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
