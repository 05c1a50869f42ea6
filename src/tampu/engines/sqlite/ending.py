"""How messages end, and what is kept of an attempt that failed. Who ends leaves its group's place to the next."""

from __future__ import annotations

from collections.abc import Sequence

from tampu.engines.codes import DEAD
from tampu.engines.sqlite.commit import Commit
from tampu.engines.sqlite.lanes import leave_lanes


def end(
    commit: Commit, q: int, state: int, rows: Sequence[tuple[int, int, int | None]], *, leaves: bool = True
) -> None:
    """Messages that have left their index end as ``state``; rows are (seq, attempts, lease). Without ``leaves`` the
    caller lets them leave their places, when all that end together have ended."""
    commit.db.executemany(
        "INSERT INTO tampu_ended VALUES (?, ?, ?, ?, ?, ?)",
        [(seq, q, state, commit.now, attempts, lease) for seq, attempts, lease in rows],
    )
    seqs = [row[0] for row in rows]
    commit.ended(q, state, seqs)
    if leaves:
        leave_lanes(commit, q, seqs)


def bury(commit: Commit, seq: int, q: int, attempts: int, lease: int | None, reason: str) -> None:
    """The message is dead; somebody may replay it."""
    commit.db.execute("INSERT INTO tampu_dead VALUES (?, ?, ?, ?, ?, ?)", (seq, q, commit.now, reason, attempts, lease))
    commit.count(q, DEAD, 1)
    leave_lanes(commit, q, [seq])


def write_failure(
    commit: Commit,
    seq: int,
    attempt: int,
    outcome: str,
    worker: str | None,
    error: str | None,
    traceback: str | None,
) -> None:
    """Keep what went wrong with an attempt, for the history of the message."""
    commit.db.execute(
        "INSERT INTO tampu_failure VALUES (?1, (SELECT coalesce(max(no), 0) + 1 FROM tampu_failure WHERE seq = ?1),"
        " ?2, ?3, ?4, ?5, ?6, ?7)",
        (seq, attempt, commit.now, outcome, worker, error, traceback),
    )
