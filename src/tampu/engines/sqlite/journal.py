"""Reading the journal. One packed row per commit, verb and queue (`commit.pack_record`) is one transition per message.

Offsets count transitions, so a reader may stop anywhere and resume exactly there.
"""

from __future__ import annotations

import sqlite3
from typing import Any

import msgspec

from tampu.engines.encoding import MOST_RECORDS, PARTITION, STATES, fingerprint, unpack_seqs
from tampu.engines.sqlite.ids import Ids
from tampu.model.journal import JournalPage, Position, Transition


def read(
    db: sqlite3.Connection, names: Any, ids: Ids, after: Position | None, limit: int, tenant: str | None
) -> JournalPage:
    """At most ``limit`` transitions after a position. With ``tenant``, only its own."""
    (latest,) = db.execute("SELECT n FROM tampu_counter WHERE q = 0 AND kind = 1").fetchone()
    offset = (after or {}).get(PARTITION, 0)
    # The record that holds the next offset may have begun before it.
    (start,) = db.execute("SELECT max(first) FROM tampu_journal WHERE first <= ?", (offset + 1,)).fetchone()
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
        # Records that retention has removed do not count as backlog.
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
