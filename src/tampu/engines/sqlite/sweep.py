"""sweep: what happens by time alone. Promote what is due, reap expired leases, expire messages.

Contract: at most ``limit`` of each per commit. A message is moved once, whichever process sweeps. A claim sweeps first,
so it does not depend on maintenance.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from tampu.engines.encoding import CANCELLED, DEAD, DELAYED, LEASED, READY, as_json, unpack_seqs
from tampu.engines.port import Sweep, Swept
from tampu.engines.sqlite.commit import Commit
from tampu.engines.sqlite.finish import dead_letter, end, expire, write_failure
from tampu.engines.sqlite.group_rates import token_again
from tampu.engines.sqlite.groups import resume
from tampu.engines.sqlite.indexes import enter_delayed, enter_ready, restore_marks, withdraw
from tampu.model.errors import TampuError
from tampu.model.journal import lease_end
from tampu.model.reasons import LEASE_EXPIRED

DUE = (
    "SELECT d.seq, d.q, m.rank, d.attempts, d.lease, m.lane FROM tampu_delayed d"
    " CROSS JOIN tampu_message m ON m.seq = d.seq WHERE d.run_at <= ? ORDER BY d.run_at, d.seq LIMIT ?"
)
RUN_OUT = "SELECT until, lease, seqs FROM tampu_claim WHERE until <= ? ORDER BY until, lease LIMIT ?"
PAST = "SELECT at, seq FROM tampu_expiry WHERE at <= ? ORDER BY at, seq LIMIT ?"
NEXT = (
    "SELECT (SELECT min(run_at) FROM tampu_delayed), (SELECT min(until) FROM tampu_claim),"
    " (SELECT min(at) FROM tampu_expiry)"
)


def sweep(commit: Commit, calls: Sequence[Sweep]) -> list[Swept | TampuError]:
    moved, _ = sweep_due(commit, max(call.limit for call in calls))
    return [Swept(moved, next_due(commit.db))] * len(calls)


def next_due(db: sqlite3.Connection) -> int | None:
    return min((at for at in db.execute(NEXT).fetchone() if at is not None), default=None)


def sweep_due(commit: Commit, limit: int) -> tuple[int, bool]:
    """How many messages were moved, and whether more may be due."""
    promote_at, reap_at, expire_at = commit.db.execute(NEXT).fetchone()
    now = commit.now
    moved, more = 0, False
    for at, work in ((expire_at, _expire), (reap_at, _reap), (promote_at, _promote)):
        if at is not None and at <= now:
            count, seen = work(commit, limit)
            moved += count
            more = more or seen >= limit
    return moved, more


def _promote(commit: Commit, limit: int) -> tuple[int, int]:
    rows = commit.db.execute(DUE, (commit.now, limit)).fetchall()
    commit.db.execute(
        "DELETE FROM tampu_delayed WHERE seq IN (SELECT value FROM json_each(?))",
        (as_json(seq for seq, _, _, _, _, _ in rows),),
    )
    for (seq, q, _, attempts, _, _), state in zip(rows, resume(commit, rows), strict=True):
        commit.count(q, DELAYED, -1)
        commit.note("promote", q, state, seq, attempts)
    return len(rows), len(rows)


def _reap(commit: Commit, limit: int) -> tuple[int, int]:
    """Check claims whose time has come, up to ``limit`` messages; the last claim perhaps only in part."""
    seen = moved = 0
    db = commit.db
    for until, lease, packed in db.execute(RUN_OUT, (commit.now, limit)).fetchall():
        whole = unpack_seqs(packed)
        seqs = whole[: limit - seen]
        db.execute("DELETE FROM tampu_claim WHERE until = ? AND lease = ?", (until, lease))
        rows = db.execute(
            "SELECT l.seq, l.q, l.until, l.attempts, l.worker, l.cancel, m.rank, m.max_attempts, m.lane"
            " FROM json_each(?) j CROSS JOIN tampu_leased l ON l.seq = j.value"
            " CROSS JOIN tampu_message m ON m.seq = l.seq WHERE l.lease = ?",
            (as_json(seqs), lease),
        ).fetchall()
        expired, extended = [], []
        for row in rows:
            seq, _, lease_until, *_ = row
            if lease_until <= commit.now:
                expired.append(row)
            else:
                extended.append((lease_until, seq))
        if extended:
            commit.schedule_reap(min(extended)[0], lease, [seq for _, seq in extended])
        _return(commit, expired)
        moved += len(expired)
        seen += len(seqs)
        if len(seqs) < len(whole):
            commit.schedule_reap(until, lease, whole[len(seqs) :])
        if seen >= limit:
            break
    return moved, seen


def _return(commit: Commit, rows: list[tuple[int, int, int, int, str | None, int, int, int, str | None]]) -> None:
    """Messages whose lease expired: to the end of their rank, or dead after the last attempt.

    No settle marker is stored: a late settle must not be mistaken for a repeated one.
    """
    if not rows:
        return
    commit.db.execute(
        "DELETE FROM tampu_leased WHERE seq IN (SELECT value FROM json_each(?))",
        (as_json(seq for seq, _, _, _, _, _, _, _, group in rows if group is None),),
    )
    back, later = [], []
    for seq, q, until, attempts, worker, cancel, rank, max_attempts, group in rows:
        if group is not None:  # one by one: a leased message does not count as waiting for a token
            commit.db.execute("DELETE FROM tampu_leased WHERE seq = ?", (seq,))
        commit.count(q, LEASED, -1)
        write_failure(commit, seq, attempts, LEASE_EXPIRED, worker, None, None)
        if cancel:
            end(commit, q, CANCELLED, [(seq, attempts, None)])
            commit.note("cancel", q, CANCELLED, seq, attempts, worker, lease_end(until))
        elif attempts >= max_attempts:
            dead_letter(commit, seq, q, attempts, None, LEASE_EXPIRED)
            commit.note("reap", q, DEAD, seq, attempts, worker, lease_end(until))
        else:
            at = token_again(commit, seq, q, group)
            if at is None:
                back.append((seq, q, rank, attempts, None))
            else:
                later.append((seq, q, at, attempts, None))
            commit.note("reap", q, READY if at is None else DELAYED, seq, attempts, worker, lease_end(until))
    enter_ready(commit, back)
    enter_delayed(commit, later)
    restore_marks(commit, [seq for seq, _, _, _, _ in (*back, *later)])


def _expire(commit: Commit, limit: int) -> tuple[int, int]:
    db = commit.db
    rows = db.execute(PAST, (commit.now, limit)).fetchall()
    gone: dict[int, list[tuple[int, int]]] = {}
    for at, seq in rows:
        db.execute("DELETE FROM tampu_expiry WHERE at = ? AND seq = ?", (at, seq))
        place = withdraw(commit, seq)
        if place is not None:
            q, attempts = place
            gone.setdefault(q, []).append((seq, attempts))
    for q, late in gone.items():
        expire(commit, q, late)
    return len(rows), len(rows)
