"""A record of the journal while its commit is under way: what one verb did, column by column."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import msgspec

from tampu.engines.sqlite.codes import pack_seqs

_pack = msgspec.msgpack.Encoder().encode


class Record:
    __slots__ = ("attempts", "details", "own", "seqs", "stamps", "types")

    def __init__(self) -> None:
        self.seqs: list[int] = []
        self.stamps: list[int] = []
        self.attempts: list[int] = []
        self.types: list[str] = []
        self.details: list[str | None] = []
        self.own: dict[int, bytes] = {}
        """Ids of the user's own, by place."""

    def add(self, seq: int, stamp: int, attempt: int, own: UUID | None = None, detail: str | None = None) -> None:
        if own is not None:
            self.own[len(self.seqs)] = own.bytes
        self.seqs.append(seq)
        self.stamps.append(stamp)
        self.attempts.append(attempt)
        if detail is not None or self.details:
            self.details.extend([None] * (len(self.seqs) - 1 - len(self.details)))
            self.details.append(detail)

    def extend(self, seqs: list[int], stamps: list[int], attempts: list[int], types: list[str] | None = None) -> None:
        self.seqs.extend(seqs)
        self.stamps.extend(stamps)
        self.attempts.extend(attempts)
        if types is not None:
            self.types.extend(types)

    def packed(self, verb: str, state: int | None, worker: str | None) -> bytes:
        """A column in which all values are the same is written as that one value."""
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
                self.own or None,
            )
        )


def _folded(values: list[Any]) -> Any:
    first = values[0]
    return first if values.count(first) == len(values) else values
