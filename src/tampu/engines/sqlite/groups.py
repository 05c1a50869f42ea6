"""The slots of groups: which message gets one, which is held, and which is next when a slot becomes free.

What slots and group rates are: `tampu.engines.groups`. What happens when a message is claimed: `group_rates`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tampu.engines.encoding import DELAYED, HELD, READY, as_json
from tampu.engines.groups import ORDERED, GroupRate, Limits, stored
from tampu.engines.sqlite.commit import Commit
from tampu.engines.sqlite.indexes import enter_delayed, enter_ready, hold, start

# -- limits


def limits_of(commit: Commit, q: int) -> Limits:
    """How many slots each group of a queue has, and its rate."""
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


# -- slots


def take_slots(commit: Commit, q: int, group: str, seq: int) -> None:
    commit.db.execute("INSERT INTO tampu_lane VALUES (?, ?, ?)", (q, group, seq))
    if (q, group) in commit.slots:
        commit.slots[q, group] += 1


def free_slots(commit: Commit, q: int, slots: Iterable[tuple[str, int]]) -> None:
    """Take the slots of (group, seq). Does not admit the next messages."""
    rows = [(q, group, seq) for group, seq in slots]
    commit.db.executemany("DELETE FROM tampu_lane WHERE q = ? AND lane = ? AND seq = ?", rows)
    for _, group, _ in rows:
        commit.slots.pop((q, group), None)


def taken_slots(commit: Commit, q: int, group: str) -> tuple[int, int]:
    """How many slots of a group are taken and, if it has a rate, how many of these messages are not claimed yet."""
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
    """Give a message a slot of its group. Returns its position, from 1, among those not claimed yet; 0: none free."""
    taken, waiting = taken_slots(commit, q, group)
    if limits_of(commit, q).vacant(taken, waiting) <= 0:
        return 0
    take_slots(commit, q, group, seq)
    return waiting + 1


def spent(commit: Commit, q: int, group: str) -> int:
    """When the burst of a group is full again. Never later than after spending all of it now: the clock may have been
    ahead."""
    row = commit.db.execute("SELECT spent FROM tampu_pace WHERE q = ? AND lane = ?", (q, group)).fetchone()
    (until,) = row or (0,)
    group_rate = limits_of(commit, q).group_rate
    return until if group_rate is None else min(until, group_rate.most(commit.now))


def _due(commit: Commit, q: int, group: str, position: int, run_at: int | None) -> int | None:
    """When the message at this position among those that wait for a token may go; not before ``run_at``."""
    group_rate = limits_of(commit, q).group_rate
    if group_rate is None:
        return run_at
    due = group_rate.due(spent(commit, q, group), commit.now, position)
    return due if run_at is None else max(due, run_at)


# -- admitting


def admit(commit: Commit, seq: int, q: int, rank: int, run_at: int | None, attempts: int, group: str | None) -> int:
    """`start`, or hold the message until a slot of its group is free. Returns its state."""
    later = run_at is not None and run_at > commit.now
    if group is None or (later and limits_of(commit, q).slots != ORDERED):
        return start(commit, seq, q, rank, run_at, attempts)
    position = _take_slot(commit, seq, q, group)
    if position:
        at = _due(commit, q, group, position, run_at)
        if at is not None and at > commit.now:
            commit.waits[seq] = at
        return start(commit, seq, q, rank, at, attempts)
    hold(commit, seq, q, group, "group", run_at, attempts)
    return HELD


def resume(commit: Commit, rows: Sequence[tuple[int, int, int, int, int | None, str | None]]) -> list[int]:
    """Messages whose time has come: as `admit`, or in the slot they have kept. A retry in its slot, in a group that
    keeps order, may still have to wait for a token.

    Rows are (seq, q, rank, attempts, lease, group). Returns the new state of each.
    """
    going, states = [], []
    for seq, q, rank, attempts, lease, group in rows:
        at, position = None, 1
        if group is not None:
            if not _has_slot(commit, q, group, seq):
                position = _take_slot(commit, seq, q, group)
                at = _due(commit, q, group, position, None)
            elif limits_of(commit, q).slots == ORDERED:
                at = _due(commit, q, group, position, None)
        if not position:
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
    """A message will be retried later. It gives its slot to another meanwhile, unless the group keeps order."""
    if group is not None and limits_of(commit, q).slots != ORDERED:
        leave_groups(commit, q, [seq])


def leave_groups(commit: Commit, q: int, seqs: Sequence[int]) -> None:
    """Messages give back their slots. The next of their groups move from held to ready, in the same commit."""
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
    """Give free slots to held messages of a group, in publish order, each at the time of its token. How many."""
    if commit.db.execute("SELECT 1 FROM tampu_held WHERE q = ? AND lane = ? LIMIT 1", (q, group)).fetchone() is None:
        return 0  # checked first: counting the slots of a group with thousands takes longer than all else
    taken, waiting = taken_slots(commit, q, group)
    rows = commit.db.execute(
        "SELECT h.seq, h.run_at, h.attempts, m.rank FROM tampu_held h JOIN tampu_message m ON m.seq = h.seq"
        " WHERE h.q = ? AND h.lane = ? ORDER BY h.seq LIMIT ?",
        (q, group, max(0, limits_of(commit, q).vacant(taken, waiting))),
    ).fetchall()
    for position, (seq, run_at, attempts, rank) in enumerate(rows, waiting + 1):
        commit.db.execute("DELETE FROM tampu_held WHERE seq = ?", (seq,))
        commit.count(q, HELD, -1)
        take_slots(commit, q, group, seq)
        at = _due(commit, q, group, position, run_at)
        commit.note("free", q, start(commit, seq, q, rank, at, attempts), seq, attempts)
    return len(rows)
