"""get, list, stats: reading messages and counts. Each reads one snapshot."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

from tampu.engines.encoding import (
    CANCELLED,
    CODE,
    DEAD,
    DELAYED,
    DONE,
    EXPIRED,
    HELD,
    LEASED,
    READY,
    STATES,
    as_json,
    unpack_seqs,
)
from tampu.engines.port import Page, QueueStats
from tampu.engines.sqlite import ids, ready
from tampu.engines.sqlite.queue_registry import QueueRegistry
from tampu.model.errors import InvalidMessage
from tampu.model.message import Failure, Message, State, unpack_body
from tampu.model.times import moment

# What each index knows of a message: (attempts, run_at, ended_at, reason, cancel_requested)
_PLACES = (
    (LEASED, "SELECT attempts, NULL, NULL, NULL, cancel FROM tampu_leased WHERE seq = ?"),
    (DEAD, "SELECT attempts, NULL, at, reason, 0 FROM tampu_dead WHERE seq = ?"),
    (DELAYED, "SELECT attempts, run_at, NULL, NULL, 0 FROM tampu_delayed WHERE seq = ?"),
    (HELD, "SELECT attempts, run_at, NULL, reason, 0 FROM tampu_held WHERE seq = ?"),
)

# Pages by key: the columns after seq are the cursor, in the order of the index.
LISTS: dict[int, tuple[str, str]] = {
    DELAYED: (
        "SELECT seq, run_at, seq FROM tampu_delayed WHERE q = ? AND (run_at, seq) > (?, ?)"
        " ORDER BY run_at, seq LIMIT ?",
        "SELECT seq, run_at, seq FROM tampu_delayed WHERE q = ? ORDER BY run_at, seq LIMIT ?",
    ),
    LEASED: (
        "SELECT seq, seq FROM tampu_leased WHERE q = ? AND seq > ? ORDER BY seq LIMIT ?",
        "SELECT seq, seq FROM tampu_leased WHERE q = ? ORDER BY seq LIMIT ?",
    ),
    HELD: (
        "SELECT seq, seq FROM tampu_held WHERE q = ? AND seq > ? ORDER BY seq LIMIT ?",
        "SELECT seq, seq FROM tampu_held WHERE q = ? ORDER BY seq LIMIT ?",
    ),
    DEAD: (
        "SELECT seq, at, seq FROM tampu_dead WHERE q = ? AND (at, seq) > (?, ?) ORDER BY at, seq LIMIT ?",
        "SELECT seq, at, seq FROM tampu_dead WHERE q = ? ORDER BY at, seq LIMIT ?",
    ),
}


def state_of(db: sqlite3.Connection, q: int, seq: int) -> int:
    """The state of a message: the index it is in."""
    if ready.find(db, q, seq) is not None:
        return READY
    for code, sql in _PLACES:
        if db.execute(sql, (seq,)).fetchone():
            return code
    (code,) = db.execute("SELECT state FROM tampu_ended WHERE seq = ?", (seq,)).fetchone()
    return int(code)


def load(
    db: sqlite3.Connection, registry: QueueRegistry, seq: int, *, whole: bool = False, now: int = 0
) -> Message | None:
    """One message with its state. ``whole`` adds failures and result."""
    row = db.execute(
        "SELECT q, created, max_attempts, expires, id, body FROM tampu_message WHERE seq = ?", (seq,)
    ).fetchone()
    if row is None:
        return None
    q, created, max_attempts, expires, own, body = row
    tenant, queue = registry.name(db, q)
    code, (attempts, run_at, ended, reason, cancel) = _place(db, q, seq)
    failures: tuple[Failure, ...] = ()
    result = None
    if whole:
        failures = _failures(db, seq)
        found = db.execute("SELECT body FROM tampu_result WHERE seq = ? AND until > ?", (seq, now)).fetchone()
        (result,) = found or (None,)
    error = failures[-1].error if failures else last_errors(db, [seq]).get(seq)
    return Message(
        ids.id_text(own) if own else registry.id.of(seq),
        tenant,
        queue,
        STATES[code],
        unpack_body(body),
        attempts,
        max_attempts,
        created,
        run_at,
        expires,
        ended,
        reason,
        error,
        failures,
        result,
        bool(cancel),
    )


def _place(db: sqlite3.Connection, q: int, seq: int) -> tuple[int, Any]:
    row = db.execute("SELECT state, attempts, at FROM tampu_ended WHERE seq = ?", (seq,)).fetchone()
    if row is not None:
        state, attempts, ended = row
        return state, (attempts, None, ended, None, 0)
    run = ready.find(db, q, seq)
    if run is not None:
        _, _, _, attempts, _, _ = run
        return READY, (attempts, None, None, None, 0)
    for code, sql in _PLACES:
        row = db.execute(sql, (seq,)).fetchone()
        if row is not None:
            return code, row
    raise sqlite3.DatabaseError(f"message {seq} is in no index")


def _failures(db: sqlite3.Connection, seq: int) -> tuple[Failure, ...]:
    return tuple(
        Failure(attempt, moment(at), outcome, worker, error, traceback)
        for attempt, at, outcome, worker, error, traceback in db.execute(
            "SELECT attempt, at, outcome, worker, error, traceback FROM tampu_failure WHERE seq = ? ORDER BY no",
            (seq,),
        )
    )


def last_errors(db: sqlite3.Connection, seqs: Sequence[int]) -> dict[int, str | None]:
    """The error of the last failed attempt, for each message that has one."""
    return dict(
        db.execute(
            "SELECT f.seq, f.error FROM json_each(?) j CROSS JOIN tampu_failure f ON f.seq = j.value"
            " ORDER BY f.seq, f.no",
            (as_json(seqs),),
        ).fetchall()
    )


def page(
    db: sqlite3.Connection,
    registry: QueueRegistry,
    tenant: str,
    queue: str,
    state: State,
    after: tuple[Any, ...] | None,
    limit: int,
) -> Page | None:
    q = registry.number(db, tenant, queue)
    if q is None:
        return None
    found = keys(db, q, CODE[state], after, limit)
    messages = [load(db, registry, seq) for seq, _ in found]
    return Page([m for m in messages if m is not None], next_cursor(found, limit))


def next_cursor(found: list[tuple[int, tuple[int, ...]]], limit: int) -> tuple[int, ...] | None:
    """Where the page after this one starts; None after the last."""
    if len(found) < limit or not found:
        return None
    _, cursor = found[-1]
    return cursor


def keys(
    db: sqlite3.Connection, q: int, code: int, after: tuple[Any, ...] | None, limit: int
) -> list[tuple[int, tuple[int, ...]]]:
    """(seq, cursor) of a page of any state."""
    if after and (len(after) != (1 if code in (LEASED, HELD) else 2) or not all(isinstance(v, int) for v in after)):
        raise InvalidMessage(
            "after is not a cursor of these messages", field="after", hint="pass the cursor of the page before"
        )
    if code in (DONE, CANCELLED, EXPIRED):
        return _ended_page(db, q, code, after or (0, 0), limit)
    return live_page(db, q, code, after, limit)


def live_page(
    db: sqlite3.Connection, q: int, code: int, after: tuple[Any, ...] | None, limit: int
) -> list[tuple[int, tuple[int, ...]]]:
    """(seq, cursor) of live or dead messages."""
    if code == READY:
        return [(seq, (rank, pos)) for seq, rank, pos in ready.page(db, q, tuple(after) if after else None, limit)]
    further, start = LISTS[code]
    sql, cursor = (further, after) if after else (start, ())
    return [(seq, tuple(key)) for seq, *key in db.execute(sql, (q, *cursor, limit)).fetchall()]


def _ended_page(
    db: sqlite3.Connection, q: int, state: int, after: tuple[Any, ...], limit: int
) -> list[tuple[int, tuple[int, ...]]]:
    """Ended messages, in the order they ended. The cursor is (commit, last message of it on the page)."""
    no, seen = after
    keys: list[tuple[int, tuple[int, ...]]] = []
    for number, packed in db.execute(
        "SELECT no, seqs FROM tampu_ending WHERE q = ? AND state = ? AND no >= ? ORDER BY no", (q, state, no)
    ):
        seqs = unpack_seqs(packed)
        # Trim removes from the front: if the last one seen is gone, all that are left come after it.
        start = seqs.index(seen) + 1 if number == no and seen in seqs else 0
        for seq in seqs[start:]:
            if db.execute("SELECT 1 FROM tampu_ended WHERE seq = ?", (seq,)).fetchone():
                keys.append((seq, (number, seq)))
                if len(keys) == limit:
                    return keys
    return keys


def revision(db: sqlite3.Connection) -> int:
    (n,) = db.execute("SELECT n FROM tampu_counter WHERE q = 0 AND kind = 2").fetchone()
    return int(n)


def ready_count(db: sqlite3.Connection, registry: QueueRegistry, tenant: str, queue: str) -> int:
    """0 for a queue that does not exist."""
    q = registry.number(db, tenant, queue)
    (n,) = db.execute("SELECT n FROM tampu_counter WHERE q = ? AND kind = ?", (q, READY)).fetchone() or (0,)
    return int(n)


def stats(
    db: sqlite3.Connection, registry: QueueRegistry, tenant: str, queue: str | None, now: int
) -> list[QueueStats]:
    if queue is None:
        rows = db.execute("SELECT q, name FROM tampu_queue WHERE tenant = ? ORDER BY name", (tenant,)).fetchall()
    else:
        q = registry.number(db, tenant, queue)
        rows = [] if q is None else [(q, queue)]
    found = []
    for q, name in rows:
        counts = {STATES[kind]: n for kind, n in db.execute("SELECT kind, n FROM tampu_counter WHERE q = ?", (q,))}
        oldest = db.execute("SELECT seq FROM tampu_ready WHERE q = ? ORDER BY seq LIMIT 1", (q,)).fetchone()
        since = None
        if oldest is not None:
            (since,) = db.execute("SELECT created FROM tampu_message WHERE seq = ?", oldest).fetchone()
        found.append(QueueStats(tenant, name, counts, since, now))
    return found
