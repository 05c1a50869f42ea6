"""Group rates: tokens that claims spend, when a returned message may go again, and changes of the rate.

What group rates are: `tampu.engines.groups`.
"""

from __future__ import annotations

from collections.abc import Sequence

from tampu.engines.encoding import as_json
from tampu.engines.groups import ORDERED
from tampu.engines.sqlite.commit import Commit
from tampu.engines.sqlite.groups import fill_group, free_slots, limits_of, spent, take_slots, taken_slots

# Times further ahead than the slowest rate of any queue allows, then those further ahead than their own queue's does.
AHEAD = (
    "SELECT p.q, p.lane FROM tampu_pace p CROSS JOIN tampu_queue t ON t.q = p.q"
    " WHERE p.spent > ?1 + (SELECT max(pace * pace_burst) FROM tampu_queue)"
    " AND p.spent > ?1 + t.pace * t.pace_burst ORDER BY p.spent LIMIT ?2"
)


def spend(commit: Commit, q: int, seqs: Sequence[int]) -> None:
    """Messages were claimed. Each spends a token of its group, and the next ones of the group get their times."""
    limits = limits_of(commit, q)
    if limits.group_rate is None:
        return
    claimed: dict[str, list[int]] = {}
    for group, seq in commit.db.execute(
        "SELECT m.lane, m.seq FROM json_each(?) j CROSS JOIN tampu_message m ON m.seq = j.value"
        " WHERE m.lane IS NOT NULL",
        (as_json(seqs),),
    ).fetchall():
        claimed.setdefault(group, []).append(seq)
    commit.begin_record_group()  # the next claim of this commit may take what is admitted here
    for group, taken in claimed.items():
        until = limits.group_rate.spend(spent(commit, q, group), commit.now, len(taken))
        commit.db.execute("INSERT OR REPLACE INTO tampu_pace VALUES (?, ?, ?)", (q, group, until))
        if not limits.keeps_slot:
            free_slots(commit, q, [(group, seq) for seq in taken])
        fill_group(commit, q, group)


def token_again(commit: Commit, seq: int, q: int, group: str | None) -> int | None:
    """When a message whose lease ended may be claimed again; None: now. It needs another token.

    If others wait for all tokens of the burst, it loses its slot and asks for one at that time.
    """
    group_rate = None if group is None else limits_of(commit, q).group_rate
    if group is None or group_rate is None:
        return None
    free_slots(commit, q, [(group, seq)])
    _, waiting = taken_slots(commit, q, group)
    if waiting < group_rate.burst:
        take_slots(commit, q, group, seq)
    due = group_rate.due(spent(commit, q, group), commit.now, waiting + 1)
    return due if due > commit.now else None


def retime_ahead(commit: Commit, limit: int) -> int:
    """Correct groups whose times were written by a clock that was ahead. Returns how many."""
    rows = commit.db.execute(AHEAD, (commit.now, limit)).fetchall()
    for q, group in rows:
        retime_group(commit, q, group)
        commit.db.execute(
            "UPDATE tampu_pace SET spent = ? WHERE q = ? AND lane = ?", (spent(commit, q, group), q, group)
        )
    return len(rows)


def retime_group(commit: Commit, q: int, group: str) -> None:
    """The rate has changed, or the clock: messages that wait for a token get a new time.

    In groups that keep order they stay as they are: some wait for another reason, and we cannot tell which.
    """
    limits = limits_of(commit, q)
    row = commit.db.execute("SELECT spent FROM tampu_pace WHERE q = ? AND lane = ?", (q, group)).fetchone()
    if row is None or limits.slots == ORDERED:
        return
    (until,) = row
    rows = commit.db.execute(
        "SELECT d.seq FROM tampu_lane l JOIN tampu_delayed d ON d.seq = l.seq"
        " WHERE l.q = ? AND l.lane = ? AND d.run_at <= ? ORDER BY d.run_at, d.seq",
        (q, group, until),
    ).fetchall()
    times = [commit.now] * len(rows)
    if limits.group_rate is not None:
        until = min(until, limits.group_rate.most(commit.now))
        commit.db.execute("UPDATE tampu_pace SET spent = ? WHERE q = ? AND lane = ?", (until, q, group))
        _, waiting = taken_slots(commit, q, group)
        first = waiting - len(rows) + 1
        times = [max(commit.now, limits.group_rate.due(until, commit.now, first + i)) for i in range(len(rows))]
    for (seq,), at in zip(rows, times, strict=True):
        commit.db.execute("UPDATE tampu_delayed SET run_at = ? WHERE seq = ?", (at, seq))
        commit.falls_due(at)
