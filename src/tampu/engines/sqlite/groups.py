"""The places of groups: who gets one and goes on, who is held, who goes next when one is left.

What a place is, and a pace: `tampu.engines.groups`. What a claim costs where there is a pace: `pacing`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tampu.engines.encoding import DELAYED, HELD, READY, as_json
from tampu.engines.groups import ORDERED, GroupRate, Limits, stored
from tampu.engines.sqlite.commit import Commit
from tampu.engines.sqlite.indexes import enter_delayed, enter_ready, hold, start

# -- limits


def limits_of(commit: Commit, q: int) -> Limits:
    """How many places each group of a queue has, and its pace."""
    if q not in commit.limits:
        sql = "SELECT places, pace, pace_burst FROM tampu_queue WHERE q = ?"
        commit.limits[q] = Limits.kept(*commit.db.execute(sql, (q,)).fetchone())
    return commit.limits[q]


def set_limits(commit: Commit, q: int, slots: int | None, group_rate: GroupRate | None) -> None:
    new = Limits(stored(slots), group_rate)
    if limits_of(commit, q) != new:
        commit.limits[q] = new
        commit.db.execute(
            "UPDATE tampu_queue SET places = ?, pace = ?, pace_burst = ? WHERE q = ?",
            (new.slots, group_rate and group_rate.us, group_rate and group_rate.burst, q),
        )


# -- places


def take_slots(commit: Commit, q: int, group: str, seq: int) -> None:
    commit.db.execute("INSERT INTO tampu_lane VALUES (?, ?, ?)", (q, group, seq))
    if (q, group) in commit.slots:
        commit.slots[q, group] += 1


def free_slots(commit: Commit, q: int, slots: Iterable[tuple[str, int]]) -> None:
    """(lane, seq) have no places any more; nobody is let go for that."""
    rows = [(q, group, seq) for group, seq in slots]
    commit.db.executemany("DELETE FROM tampu_lane WHERE q = ? AND lane = ? AND seq = ?", rows)
    for _, group, _ in rows:
        commit.slots.pop((q, group), None)


def taken_slots(commit: Commit, q: int, group: str) -> tuple[int, int]:
    """How many places of a group are taken and, where it has a pace, how many of these were not claimed yet."""
    if limits_of(commit, q).group_rate is None:
        if (q, group) not in commit.slots:
            sql = "SELECT count(*) FROM tampu_lane WHERE q = ? AND lane = ?"
            (commit.slots[q, group],) = commit.db.execute(sql, (q, group)).fetchone()
        return commit.slots[q, group], 0
    sql = (
        "SELECT count(*), count(*) - count(c.seq) FROM tampu_lane l LEFT JOIN tampu_leased c ON c.seq = l.seq"
        " WHERE l.q = ? AND l.lane = ?"
    )
    taken, waiting = commit.db.execute(sql, (q, group)).fetchone()
    return taken, waiting


def _has_slot(commit: Commit, q: int, group: str, seq: int) -> bool:
    sql = "SELECT 1 FROM tampu_lane WHERE q = ? AND lane = ? AND seq = ?"
    return commit.db.execute(sql, (q, group, seq)).fetchone() is not None


def _take_slot(commit: Commit, seq: int, q: int, group: str) -> int:
    """Give a message a place of its group: the how many-th of those that were not claimed yet; 0: all are taken."""
    taken, waiting = taken_slots(commit, q, group)
    if limits_of(commit, q).vacant(taken, waiting) <= 0:
        return 0
    take_slots(commit, q, group, seq)
    return waiting + 1


def spent(commit: Commit, q: int, group: str) -> int:
    """When all that a group has spent is saved up again; by a clock that was ahead, as if all were spent now."""
    row = commit.db.execute("SELECT spent FROM tampu_pace WHERE q = ? AND lane = ?", (q, group)).fetchone()
    until = int(row[0]) if row else 0
    group_rate = limits_of(commit, q).group_rate
    return until if group_rate is None else min(until, group_rate.most(commit.now))


def _due(commit: Commit, q: int, group: str, place: int, run_at: int | None) -> int | None:
    """When the message may go that is so many-th of its group to wait for a token; not before ``run_at``."""
    group_rate = limits_of(commit, q).group_rate
    if group_rate is None:
        return run_at
    due = group_rate.due(spent(commit, q, group), commit.now, place)
    return due if run_at is None else max(due, run_at)


# -- going on


def admit(commit: Commit, seq: int, q: int, rank: int, run_at: int | None, attempts: int, group: str | None) -> int:
    """`start`, unless all places of its group are taken: then held until one is free."""
    later = run_at is not None and run_at > commit.now
    if group is None or (later and limits_of(commit, q).slots != ORDERED):
        return start(commit, seq, q, rank, run_at, attempts)
    place = _take_slot(commit, seq, q, group)
    if place:
        at = _due(commit, q, group, place, run_at)
        if at is not None and at > commit.now:
            commit.waits[seq] = at
        return start(commit, seq, q, rank, at, attempts)
    hold(commit, seq, q, group, "group", run_at, attempts)
    return HELD


def resume(commit: Commit, rows: Sequence[tuple[int, int, int, int, int | None, str | None]]) -> list[int]:
    """The time of messages has come: they go on as `admit` says, or in the place they have kept. One that is tried
    again in its place (as groups that keep order do) may have to wait for a token still.

    Rows are (seq, q, rank, attempts, lease, lane); the states they are in then.
    """
    going, states = [], []
    for seq, q, rank, attempts, lease, group in rows:
        at, place = None, 1
        if group is not None:
            if not _has_slot(commit, q, group, seq):
                place = _take_slot(commit, seq, q, group)
                at = _due(commit, q, group, place, None)
            elif limits_of(commit, q).slots == ORDERED:
                at = _due(commit, q, group, place, None)
        if not place:
            hold(commit, seq, q, group, "group", None, attempts)
            states.append(HELD)
        elif at is not None and at > commit.now:
            enter_delayed(commit, [(seq, q, at, attempts, lease)])
            states.append(DELAYED)
        else:
            going.append((seq, q, rank, attempts, lease))
            states.append(READY)
    enter_ready(commit, going)
    return states


# -- leaving


def step_back(commit: Commit, seq: int, q: int, group: str | None) -> None:
    """A message will be tried again later: its place is another's meanwhile, where groups need not keep order."""
    if group is not None and limits_of(commit, q).slots != ORDERED:
        leave_groups(commit, q, [seq])


def leave_groups(commit: Commit, q: int, seqs: Sequence[int]) -> None:
    """Messages give their places back; the next of their groups move from held to ready, in this same commit."""
    db = commit.db
    if db.execute("SELECT 1 FROM tampu_lane WHERE q = ? LIMIT 1", (q,)).fetchone() is None:
        return
    slots = db.execute(
        "SELECT l.lane, l.seq FROM json_each(?) j CROSS JOIN tampu_message m ON m.seq = j.value"
        " JOIN tampu_lane l ON l.q = m.q AND l.lane = m.lane AND l.seq = m.seq",
        (as_json(seqs),),
    ).fetchall()
    free_slots(commit, q, slots)
    for group in dict.fromkeys(group for group, _ in slots):
        fill_group(commit, q, group)


def fill_group(commit: Commit, q: int, group: str) -> int:
    """Let go who waits for a place of its group and can have one, in publish order, each when there is a token; how
    many."""
    if commit.db.execute("SELECT 1 FROM tampu_held WHERE q = ? AND lane = ? LIMIT 1", (q, group)).fetchone() is None:
        return 0  # before the places are counted: of a group with thousands that takes longer than all else
    taken, waiting = taken_slots(commit, q, group)
    rows = commit.db.execute(
        "SELECT h.seq, h.run_at, h.attempts, m.rank FROM tampu_held h JOIN tampu_message m ON m.seq = h.seq"
        " WHERE h.q = ? AND h.lane = ? ORDER BY h.seq LIMIT ?",
        (q, group, max(0, limits_of(commit, q).vacant(taken, waiting))),
    ).fetchall()
    for place, (seq, run_at, attempts, rank) in enumerate(rows, waiting + 1):
        commit.db.execute("DELETE FROM tampu_held WHERE seq = ?", (seq,))
        commit.count(q, HELD, -1)
        take_slots(commit, q, group, seq)
        at = _due(commit, q, group, place, run_at)
        commit.note("free", q, start(commit, seq, q, rank, at, attempts), seq, attempts)
    return len(rows)
