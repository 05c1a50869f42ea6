"""The journal: one packed row per commit, verb and queue, read as one transition per message.

Commits write records without offsets. A reader first gives offsets to all records it can see; one reader does so at a
time. So the record of a commit that becomes visible late gets a later offset: no reader skips it or waits for it. The
order is that of the entry numbers, drawn at the end of each commit, so transitions of a message keep their order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tampu.engines.encoding import MOST_RECORDS, PARTITION, STATES, fingerprint, id_text, unpack_seqs
from tampu.engines.sql.db import Db, Ints
from tampu.engines.sql.queue_registry import QueueRegistry
from tampu.model.journal import JournalPage, Position, Transition

STEP = 5_000
"""Records that get offsets in one statement."""
_TURNS = 20


def number(db: Db) -> int:
    """Give offsets to some of the visible records, in an open transaction; returns how many."""
    (end,) = db.row("lock_journal")
    return int(db.value("number_journal", STEP, end))


def number_all(db: Db) -> bool:
    """`number` repeatedly, up to a bound; returns whether all visible records have offsets now."""
    return any(number(db) < STEP for _ in range(_TURNS))


def catch_up(db: Db) -> bool:
    """Give offsets to visible records in a transaction of its own; returns whether all have offsets now."""
    if not db.value("has_unnumbered"):
        return True
    with db.together():
        db.command(b"BEGIN")
        everything = number_all(db)
        db.command(b"COMMIT")
    return everything


def read(db: Db, registry: QueueRegistry, after: Position | None, limit: int, tenant: str | None) -> JournalPage:
    """At most ``limit`` transitions after a position; those of other tenants are skipped."""
    (latest,) = db.row("select_journal_end")
    offset = (after or {}).get(PARTITION, 0)
    found: list[Transition] = []
    left, step = MOST_RECORDS, limit
    while left > 0 and len(found) < limit:
        # Mostly a record has several transitions, all of this tenant; if not, the next step is larger.
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
                # Records removed by retention do not count as backlog.
                offset = max(offset, latest)
                break
        left -= len(rows)
        step *= 4
    return JournalPage(transitions=found, position={PARTITION: offset}, latest={PARTITION: latest})


def _unfold(
    first: int, at: int, tenant: str, queue: str, body: bytes, registry: QueueRegistry, wanted: range
) -> list[Transition]:
    """The transitions of a record at the positions ``wanted``."""
    verb, state, worker, packed, stamps, attempts, types, details, own = registry.record.unpacked(body)
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
            id=id_text(own[i]) if own and i in own else id,
            state=None if state is None else STATES[state],
            attempt=attempts[i] if isinstance(attempts, list) else attempts,
            type=types[i] if isinstance(types, list) else types,
            worker=worker,
            detail=details[i] if details else None,
            fingerprint=fingerprint(details[i]) if details and details[i] else None,
        )
        for i, id in zip(wanted, ids, strict=True)
    ]


def trim(db: Db, now: int, before: int, limit: int, upto: int | None) -> int:
    """Remove the oldest records that are from before ``before`` and read up to ``upto``; returns how many."""
    rows = db.rows("select_oldest_journal", limit)
    ages = written_at(
        now, [(first, at) for first, _, at in rows], lambda first: db.value("select_later_record", first, now)
    )
    gone: list[int] = []
    for (first, n, _), age in zip(rows, ages, strict=True):
        if age > before or (upto is not None and first + n - 1 > upto):
            break
        gone.append(first)
    if gone:
        db.send("delete_journal", Ints(gone))
    return len(gone)


def written_at(now: int, rows: Iterable[tuple[int, int]], later: Callable[[int], int | None]) -> list[int]:
    """When entries (number, time) were written, the oldest first. ``later``: the next time that is not in the future.

    A clock that was ahead has written times in the future. Such an entry is at least as old as the next one with a time
    in the past. Otherwise it would keep all entries after it until its own time comes.
    """
    ages: list[int] = []
    next_: int | None = None
    for number, at in rows:
        if at <= now:
            next_ = None
        elif next_ is None:
            next_ = later(number) or now
        ages.append(at if next_ is None else next_)
    return ages
