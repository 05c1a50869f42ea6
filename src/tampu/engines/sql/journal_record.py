"""A journal record while its commit builds it: what one verb did, column by column."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import msgspec

from tampu.engines.encoding import pack_seqs

_pack = msgspec.msgpack.Encoder().encode


class Record:
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

    def add(self, seq: int, stamp: int, attempt: int, own: UUID | None = None, detail: str | None = None) -> None:
        if own is not None:
            self.own[len(self.seqs)] = own.bytes
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
                _folded(self.stamps),
                _folded(self.attempts),
                _folded(self.types) if self.types else None,
                self.details or None,
                self._all_own(),
            )
        )


def _folded(values: list[Any]) -> Any:
    first = values[0]
    return first if values.count(first) == len(values) else values
