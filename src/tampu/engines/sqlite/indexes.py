"""Putting messages into ready, delayed or held, and taking them out again.

A waiting message may have marks, by which it is found: an expiry and a key. It loses them when it no longer waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tampu.engines.encoding import DELAYED, HELD, READY, as_json
from tampu.engines.sqlite import ready
from tampu.engines.sqlite.commit import Commit
from tampu.model.rank import FAIR


def enter_ready(commit: Commit, rows: Sequence[tuple[int, int, int, int, int | None]]) -> None:
    """Put messages at the end of their rank. Rows are (seq, q, rank, attempts, lease)."""
    commit.db.executemany(
        ready.INSERT,
        [
            (q, rank if rank != FAIR else commit.turns.rank_of(q, seq), pos, seq, attempts, lease, seq)
            for pos, (seq, q, rank, attempts, lease) in zip(commit.numbers(len(rows)), rows, strict=True)
        ],
    )
    for _, q, _, _, _ in rows:
        commit.count(q, READY, 1)
        commit.became_ready(q, 1)


def enter_delayed(commit: Commit, rows: Sequence[tuple[int, int, int, int, int | None]]) -> None:
    """Rows are (seq, q, run_at, attempts, lease)."""
    commit.db.executemany("INSERT INTO tampu_delayed VALUES (?, ?, ?, ?, ?)", rows)
    for _, q, run_at, _, _ in rows:
        commit.count(q, DELAYED, 1)
        commit.falls_due(run_at)


def start(commit: Commit, seq: int, q: int, rank: int, run_at: int | None, attempts: int) -> int:
    """Put a message into ready, or into delayed if its time has not come. Returns its state."""
    if run_at is not None and run_at > commit.now:
        enter_delayed(commit, [(seq, q, run_at, attempts, None)])
        return DELAYED
    enter_ready(commit, [(seq, q, rank, attempts, None)])
    return READY


def hold(commit: Commit, seq: int, q: int, group: str | None, reason: str, run_at: int | None, attempts: int) -> None:
    """``group`` is the group whose slot it waits for. None: it waits for a `Free` call."""
    commit.db.execute("INSERT INTO tampu_held VALUES (?, ?, ?, ?, ?, ?)", (seq, q, group, reason, run_at, attempts))
    commit.count(q, HELD, 1)


def withdraw(commit: Commit, seq: int) -> tuple[int, int] | None:
    """Take a message out of ready, delayed or held, with its key and expiry. (q, attempts), or None if in none."""
    db = commit.db
    found: tuple[int, int] | None = None
    (q,) = db.execute("SELECT q FROM tampu_message WHERE seq = ?", (seq,)).fetchone()
    run = ready.take(db, q, seq)
    if run is not None:
        _, _, _, attempts, _, _ = run
        commit.count(q, READY, -1)
        found = (q, attempts)
    else:
        for table, code in (("tampu_delayed", DELAYED), ("tampu_held", HELD)):
            row = db.execute(f"SELECT attempts FROM {table} WHERE seq = ?", (seq,)).fetchone()  # noqa: S608 - a constant
            if row is not None:
                db.execute(f"DELETE FROM {table} WHERE seq = ?", (seq,))  # noqa: S608 - a constant
                commit.count(q, code, -1)
                (attempts,) = row
                found = (q, attempts)
    if found is not None:
        drop_marks(commit, [seq])
    return found


def restore_marks(commit: Commit, seqs: Iterable[int]) -> None:
    """Messages that wait again get back their expiry, and their key if no newer message has it."""
    text = as_json(seqs)
    commit.db.execute(
        "INSERT OR IGNORE INTO tampu_expiry SELECT m.expires, m.seq FROM json_each(?) j"
        " CROSS JOIN tampu_message m ON m.seq = j.value WHERE m.expires IS NOT NULL",
        (text,),
    )
    (soonest,) = commit.db.execute(
        "SELECT min(m.expires) FROM json_each(?) j CROSS JOIN tampu_message m ON m.seq = j.value", (text,)
    ).fetchone()
    if soonest is not None:
        commit.falls_due(soonest)
    commit.db.execute(
        "INSERT OR IGNORE INTO tampu_key SELECT m.q, m.key, m.seq FROM json_each(?) j"
        " CROSS JOIN tampu_message m ON m.seq = j.value WHERE m.key IS NOT NULL",
        (text,),
    )


def drop_marks(commit: Commit, seqs: Iterable[int]) -> None:
    """Messages that no longer wait lose their expiry and their key."""
    text = as_json(seqs)
    commit.db.execute(
        "DELETE FROM tampu_expiry WHERE (at, seq) IN (SELECT m.expires, m.seq FROM json_each(?) j"
        " CROSS JOIN tampu_message m ON m.seq = j.value WHERE m.expires IS NOT NULL)",
        (text,),
    )
    for q, key, seq in commit.db.execute(
        "SELECT m.q, m.key, m.seq FROM json_each(?) j CROSS JOIN tampu_message m ON m.seq = j.value"
        " WHERE m.key IS NOT NULL",
        (text,),
    ).fetchall():
        commit.db.execute("DELETE FROM tampu_key WHERE q = ? AND key = ? AND seq = ?", (q, key, seq))
