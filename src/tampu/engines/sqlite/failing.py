"""What is kept of an attempt that failed, and how a message dies."""

from __future__ import annotations

from tampu.engines.sqlite.codes import DEAD
from tampu.engines.sqlite.commit import Commit


def bury(commit: Commit, seq: int, q: int, attempts: int, lease: int | None, reason: str) -> None:
    """The message is dead; somebody may replay it."""
    commit.db.execute("INSERT INTO tampu_dead VALUES (?, ?, ?, ?, ?, ?)", (seq, q, commit.now, reason, attempts, lease))
    commit.count(q, DEAD, 1)
    commit.leave_lanes(q, [seq])


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
