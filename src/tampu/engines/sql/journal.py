"""The journal: one packed row per commit, verb and queue; read back as one transition per message.

A commit writes its records without offsets. Who reads first gives offsets to all that is visible to it, one reader at
a time. So an entry whose commit comes late gets a later offset, nobody skips it, and nobody waits for it. The order
is that of the entries' numbers, which are drawn at the end of a commit: a message's moves are told in their order.
"""

from __future__ import annotations

from uuid import UUID

import msgspec

from tampu.engines.encoding import MOST_RECORDS, PARTITION, STATES, fingerprint, unpack_seqs
from tampu.engines.sql.db import Db
from tampu.engines.sql.queue_registry import QueueRegistry
from tampu.model.journal import JournalPage, Position, Transition

STEP = 5_000
"""Records that get offsets at a time."""
_TURNS = 20


def number(db: Db) -> int:
    """Give offsets to a bounded part of what is visible; how many records. In a transaction of its own."""
    (end,) = db.row("lock_journal")
    return int(db.value("number_journal", STEP, end))


def number_all(db: Db) -> bool:
    """As `number`, several times if there is much; whether it was all."""
    return any(number(db) < STEP for _ in range(_TURNS))


def catch_up(db: Db) -> bool:
    """Give offsets to what is visible, if there is anything, in a transaction of its own; whether it was all."""
    if not db.value("has_unnumbered"):
        return True
    with db.together():
        db.say(b"BEGIN")
        everything = number_all(db)
        db.say(b"COMMIT")
    return everything


def read(db: Db, registry: QueueRegistry, after: Position | None, limit: int, tenant: str | None) -> JournalPage:
    """Transitions after a position, at most ``limit``; those of other tenants are passed over."""
    (latest,) = db.row("select_journal_end")
    offset = (after or {}).get(PARTITION, 0)
    found: list[Transition] = []
    left, step = MOST_RECORDS, limit
    while left > 0 and len(found) < limit:
        # Mostly a record has several transitions, and all are the tenant's; if not, the next step is larger.
        step = min(step + 1, left)
        rows = db.rows("read_journal", offset, step)
        for first, n, at, q, body in rows:
            if first + n - 1 <= offset:
                continue
            skip = max(0, offset + 1 - first)
            owner, queue = registry.name(db, q)
            if tenant is not None and owner != tenant:
                offset = first + n - 1
                continue
            wanted = range(skip, min(n, skip + limit - len(found)))
            part = _unfold(first, at, owner, queue, body, registry, wanted)
            found.extend(part)
            offset = part[-1].offset
            if len(found) >= limit:
                break
        else:
            if len(rows) < step:
                # What retention has removed is no backlog any more.
                offset = max(offset, latest)
                break
        left -= len(rows)
        step *= 4
    return JournalPage(transitions=found, position={PARTITION: offset}, latest={PARTITION: latest})


def _unfold(
    first: int, at: int, tenant: str, queue: str, body: bytes, registry: QueueRegistry, wanted: range
) -> list[Transition]:
    """The transitions of a record that are wanted, by place."""
    verb, state, worker, packed, stamps, attempts, types, details, own = msgspec.msgpack.decode(body)
    seqs = unpack_seqs(packed)[wanted.start : wanted.stop]
    times = stamps[wanted.start : wanted.stop] if isinstance(stamps, list) else [stamps] * len(seqs)
    ids = registry.id.many(times, seqs)
    return [
        Transition(
            offset=first + i,
            at_us=at,
            tenant=tenant,
            queue=queue,
            verb=verb,
            id=str(UUID(bytes=own[i])) if own and i in own else id,
            state=None if state is None else STATES[state],
            attempt=attempts[i] if isinstance(attempts, list) else attempts,
            type=types[i] if isinstance(types, list) else types,
            worker=worker,
            detail=details[i] if details else None,
            fingerprint=fingerprint(details[i]) if details and details[i] else None,
        )
        for i, id in zip(wanted, ids, strict=True)
    ]


def trimmed(db: Db, before: int, limit: int, upto: int | None) -> int:
    """Remove records from the oldest on, as long as they are old enough and read; how many."""
    return len(db.rows("trim_journal", before, limit, upto))
