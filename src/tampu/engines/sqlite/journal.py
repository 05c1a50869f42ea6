"""The journal: one packed row per commit, verb and queue; read back as one transition per message.

Offsets count transitions, so a reader may stop anywhere and go on exactly there.
"""

from __future__ import annotations

import sqlite3
from typing import Any

import msgspec

from tampu.engines.encoding import STATES, pack_seqs, unpack_seqs
from tampu.engines.journal_pages import MOST_RECORDS, PARTITION, fingerprint
from tampu.engines.sqlite.ids import Ids
from tampu.model.journal import JournalPage, Position, Transition

_pack = msgspec.msgpack.Encoder().encode


class Record:
    """What one verb did in one commit, column by column."""

    __slots__ = ("attempts", "details", "ids", "seqs", "types")

    def __init__(self) -> None:
        self.seqs: list[int] = []
        self.attempts: list[int] = []
        self.types: list[str] = []
        self.details: list[str | None] = []
        self.ids: dict[int, str] = {}
        """Ids of the user's own, of messages that are removed in this commit."""

    def add(self, seq: int, attempt: int, detail: str | None = None) -> None:
        self.seqs.append(seq)
        self.attempts.append(attempt)
        if detail is not None or self.details:
            self.details.extend([None] * (len(self.seqs) - 1 - len(self.details)))
            self.details.append(detail)

    def extend(self, seqs: list[int], attempts: list[int], types: list[str] | None = None) -> None:
        self.seqs.extend(seqs)
        self.attempts.extend(attempts)
        if types is not None:
            self.types.extend(types)

    def has_own_id(self) -> bool:
        return any(map((1).__and__, self.seqs))

    def copy(self) -> Record:
        twin = Record()
        twin.seqs, twin.attempts = list(self.seqs), list(self.attempts)
        twin.types, twin.details, twin.ids = list(self.types), list(self.details), dict(self.ids)
        return twin


def pack_record(
    verb: str, state: int | None, worker: str | None, record: Record, own: list[str | None] | None
) -> bytes:
    """A column in which all values are the same is written as that one value."""
    return _pack(
        (
            verb,
            state,
            worker,
            pack_seqs(record.seqs),
            _folded(record.attempts),
            _folded(record.types) if record.types else None,
            record.details or None,
            own,
        )
    )


def _folded(values: list[Any]) -> Any:
    first = values[0]
    return first if values.count(first) == len(values) else values


def read(
    db: sqlite3.Connection, names: Any, ids: Ids, after: Position | None, limit: int, tenant: str | None
) -> JournalPage:
    """Transitions after a position, at most ``limit``; those of other tenants are passed over."""
    latest = db.execute("SELECT n FROM tampu_counter WHERE q = 0 AND kind = 1").fetchone()[0]
    offset = (after or {}).get(PARTITION, 0)
    # The record that holds the next offset may have begun before it.
    start = db.execute("SELECT max(first) FROM tampu_journal WHERE first <= ?", (offset + 1,)).fetchone()[0]
    found: list[Transition] = []
    seen = 0
    for first, n, at, q, body in db.execute(
        "SELECT first, n, at, q, body FROM tampu_journal WHERE first >= ? ORDER BY first LIMIT ?",
        (start or 0, MOST_RECORDS),
    ):
        seen += 1
        if first + n - 1 <= offset:
            continue
        skip = max(0, offset + 1 - first)
        owner, queue = names(q)
        if tenant is not None and owner != tenant:
            offset = first + n - 1
            continue
        rows = _unfold(first, n, at, owner, queue, body, ids)[skip : skip + limit - len(found)]
        found.extend(rows)
        offset = rows[-1].offset
        if len(found) >= limit:
            break
    else:
        # What retention has removed is no backlog any more.
        if seen < MOST_RECORDS:
            offset = max(offset, latest)
    return JournalPage(transitions=found, position={PARTITION: offset}, latest={PARTITION: latest})


def _unfold(first: int, n: int, at: int, tenant: str, queue: str, body: bytes, ids: Ids) -> list[Transition]:
    verb, state, worker, packed, attempts, types, details, own = msgspec.msgpack.decode(body)
    seqs = unpack_seqs(packed)
    return [
        Transition(
            offset=first + i,
            at_us=at,
            tenant=tenant,
            queue=queue,
            verb=verb,
            id=(own[i] if own and own[i] else ids.of(seqs[i])),
            state=None if state is None else STATES[state],
            attempt=attempts[i] if isinstance(attempts, list) else attempts,
            type=types[i] if isinstance(types, list) else types,
            worker=worker,
            detail=details[i] if details else None,
            fingerprint=fingerprint(details[i]) if details and details[i] else None,
        )
        for i in range(n)
    ]
