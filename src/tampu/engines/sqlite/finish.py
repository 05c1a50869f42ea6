"""Ending messages, and storing failed attempts. A message that ends gives its slot to the next of its group."""

from __future__ import annotations

from collections.abc import Sequence

from tampu.engines.encoding import DEAD, EXPIRED, as_json
from tampu.engines.rules import LONG_BODY, dies
from tampu.engines.sqlite.commit import Commit
from tampu.engines.sqlite.groups import leave_groups
from tampu.model.message import unpack_body
from tampu.model.reasons import DEADLINE_PASSED


def end(
    commit: Commit, q: int, state: int, rows: Sequence[tuple[int, int, int | None]], *, leaves: bool = True
) -> None:
    """End messages that were taken out of their index, as ``state``. Rows are (seq, attempts, lease).

    Without ``leaves`` the caller calls `leave_groups`, after all that end together have ended.
    """
    commit.db.executemany(
        "INSERT INTO tampu_ended VALUES (?, ?, ?, ?, ?, ?)",
        [(seq, q, state, commit.now, attempts, lease) for seq, attempts, lease in rows],
    )
    seqs = [seq for seq, _, _ in rows]
    commit.ended(q, state, seqs)
    if leaves:
        leave_groups(commit, q, seqs)


def expire(commit: Commit, q: int, rows: Sequence[tuple[int, int]], *, leaves: bool = True) -> None:
    """Expire messages (seq, attempts) that were taken out of their index. Some are dead instead: see `rules.dies`."""
    dead = _dead_at_deadline(commit, [seq for seq, _ in rows])
    end(commit, q, EXPIRED, [(seq, attempts, None) for seq, attempts in rows if seq not in dead], leaves=False)
    for seq, attempts in rows:
        if seq in dead:
            dead_letter(commit, seq, q, attempts, None, DEADLINE_PASSED, leaves=False)
            commit.note("expire", q, DEAD, seq, attempts, None, DEADLINE_PASSED)
        else:
            commit.note("expire", q, EXPIRED, seq, attempts)
    if leaves:
        leave_groups(commit, q, [seq for seq, _ in rows])


def _dead_at_deadline(commit: Commit, seqs: Sequence[int]) -> set[int]:
    rows = commit.db.execute(
        "SELECT m.seq, m.expires, m.body FROM json_each(?) j CROSS JOIN tampu_message m ON m.seq = j.value"
        " WHERE substr(m.body, 1, 1) >= ?",
        (as_json(seqs), LONG_BODY),
    )
    return {seq for seq, expires, body in rows if dies(unpack_body(body), expires)}


def dead_letter(
    commit: Commit, seq: int, q: int, attempts: int, lease: int | None, reason: str, *, leaves: bool = True
) -> None:
    """Make the message dead. It may be replayed."""
    commit.db.execute("INSERT INTO tampu_dead VALUES (?, ?, ?, ?, ?, ?)", (seq, q, commit.now, reason, attempts, lease))
    commit.count(q, DEAD, 1)
    if leaves:
        leave_groups(commit, q, [seq])


def write_failure(
    commit: Commit, seq: int, attempt: int, outcome: str, worker: str | None, error: str | None, traceback: str | None
) -> None:
    """Add a failed attempt to the history of the message."""
    commit.db.execute(
        "INSERT INTO tampu_failure VALUES (?1, (SELECT coalesce(max(no), 0) + 1 FROM tampu_failure WHERE seq = ?1),"
        " ?2, ?3, ?4, ?5, ?6, ?7)",
        (seq, attempt, commit.now, outcome, worker, error, traceback),
    )
