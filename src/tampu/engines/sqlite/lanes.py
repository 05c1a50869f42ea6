"""The places of groups: who gets one and goes on, who is held, who goes next when one is left.

What a place is, and a pace: `tampu.engines.places`. What a claim costs where there is a pace: `pacing`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tampu.engines.codes import DELAYED, HELD, READY, as_json
from tampu.engines.places import ORDERED, Limits, Pace, stored
from tampu.engines.sqlite.commit import Commit
from tampu.engines.sqlite.waiting import enter_delayed, enter_ready, hold, start

# -- limits


def limits_of(commit: Commit, q: int) -> Limits:
    """How many places each group of a queue has, and its pace."""
    if q not in commit.limits:
        sql = "SELECT places, pace, pace_burst FROM tampu_queue WHERE q = ?"
        commit.limits[q] = Limits.kept(*commit.db.execute(sql, (q,)).fetchone())
    return commit.limits[q]


def set_limits(commit: Commit, q: int, places: int | None, pace: Pace | None) -> None:
    new = Limits(stored(places), pace)
    if limits_of(commit, q) != new:
        commit.limits[q] = new
        commit.db.execute(
            "UPDATE tampu_queue SET places = ?, pace = ?, pace_burst = ? WHERE q = ?",
            (new.places, pace and pace.us, pace and pace.burst, q),
        )


# -- places


def seat(commit: Commit, q: int, lane: str, seq: int) -> None:
    commit.db.execute("INSERT INTO tampu_lane VALUES (?, ?, ?)", (q, lane, seq))
    if (q, lane) in commit.places:
        commit.places[q, lane] += 1


def unseat(commit: Commit, q: int, seats: Iterable[tuple[str, int]]) -> None:
    """(lane, seq) have no places any more; nobody is let go for that."""
    rows = [(q, lane, seq) for lane, seq in seats]
    commit.db.executemany("DELETE FROM tampu_lane WHERE q = ? AND lane = ? AND seq = ?", rows)
    for _, lane, _ in rows:
        commit.places.pop((q, lane), None)


def taken_places(commit: Commit, q: int, lane: str) -> tuple[int, int]:
    """How many places of a group are taken and, where it has a pace, how many of these were not claimed yet."""
    if limits_of(commit, q).pace is None:
        if (q, lane) not in commit.places:
            sql = "SELECT count(*) FROM tampu_lane WHERE q = ? AND lane = ?"
            (commit.places[q, lane],) = commit.db.execute(sql, (q, lane)).fetchone()
        return commit.places[q, lane], 0
    sql = (
        "SELECT count(*), count(*) - count(c.seq) FROM tampu_lane l LEFT JOIN tampu_leased c ON c.seq = l.seq"
        " WHERE l.q = ? AND l.lane = ?"
    )
    taken, waiting = commit.db.execute(sql, (q, lane)).fetchone()
    return taken, waiting


def _is_seated(commit: Commit, q: int, lane: str, seq: int) -> bool:
    sql = "SELECT 1 FROM tampu_lane WHERE q = ? AND lane = ? AND seq = ?"
    return commit.db.execute(sql, (q, lane, seq)).fetchone() is not None


def _take_place(commit: Commit, seq: int, q: int, lane: str) -> int:
    """Give a message a place of its group: the how many-th of those that were not claimed yet; 0: all are taken."""
    taken, waiting = taken_places(commit, q, lane)
    if limits_of(commit, q).vacant(taken, waiting) <= 0:
        return 0
    seat(commit, q, lane, seq)
    return waiting + 1


def spent(commit: Commit, q: int, lane: str) -> int:
    """When all that a group has spent is saved up again; by a clock that was ahead, as if all were spent now."""
    row = commit.db.execute("SELECT spent FROM tampu_pace WHERE q = ? AND lane = ?", (q, lane)).fetchone()
    until = int(row[0]) if row else 0
    pace = limits_of(commit, q).pace
    return until if pace is None else min(until, pace.most(commit.now))


def _due(commit: Commit, q: int, lane: str, place: int, run_at: int | None) -> int | None:
    """When the message may go that is so many-th of its group to wait for a token; not before ``run_at``."""
    pace = limits_of(commit, q).pace
    if pace is None:
        return run_at
    due = pace.due(spent(commit, q, lane), commit.now, place)
    return due if run_at is None else max(due, run_at)


# -- going on


def admit(commit: Commit, seq: int, q: int, rank: int, run_at: int | None, attempts: int, lane: str | None) -> int:
    """`start`, unless all places of its group are taken: then held until one is free."""
    later = run_at is not None and run_at > commit.now
    if lane is None or (later and limits_of(commit, q).places != ORDERED):
        return start(commit, seq, q, rank, run_at, attempts)
    place = _take_place(commit, seq, q, lane)
    if place:
        at = _due(commit, q, lane, place, run_at)
        if at is not None and at > commit.now:
            commit.waits[seq] = at
        return start(commit, seq, q, rank, at, attempts)
    hold(commit, seq, q, lane, "group", run_at, attempts)
    return HELD


def resume(commit: Commit, rows: Sequence[tuple[int, int, int, int, int | None, str | None]]) -> list[int]:
    """The time of messages has come: they go on as `admit` says, or in the place they have kept. One that is tried
    again in its place (as groups that keep order do) may have to wait for a token still.

    Rows are (seq, q, rank, attempts, lease, lane); the states they are in then.
    """
    going, states = [], []
    for seq, q, rank, attempts, lease, lane in rows:
        at, place = None, 1
        if lane is not None:
            if not _is_seated(commit, q, lane, seq):
                place = _take_place(commit, seq, q, lane)
                at = _due(commit, q, lane, place, None)
            elif limits_of(commit, q).places == ORDERED:
                at = _due(commit, q, lane, place, None)
        if not place:
            hold(commit, seq, q, lane, "group", None, attempts)
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


def step_back(commit: Commit, seq: int, q: int, lane: str | None) -> None:
    """A message will be tried again later: its place is another's meanwhile, where groups need not keep order."""
    if lane is not None and limits_of(commit, q).places != ORDERED:
        leave_lanes(commit, q, [seq])


def leave_lanes(commit: Commit, q: int, seqs: Sequence[int]) -> None:
    """Messages give their places back; the next of their groups move from held to ready, in this same commit."""
    db = commit.db
    if db.execute("SELECT 1 FROM tampu_lane WHERE q = ? LIMIT 1", (q,)).fetchone() is None:
        return
    seats = db.execute(
        "SELECT l.lane, l.seq FROM json_each(?) j CROSS JOIN tampu_message m ON m.seq = j.value"
        " JOIN tampu_lane l ON l.q = m.q AND l.lane = m.lane AND l.seq = m.seq",
        (as_json(seqs),),
    ).fetchall()
    unseat(commit, q, seats)
    for lane in dict.fromkeys(lane for lane, _ in seats):
        fill_lane(commit, q, lane)


def fill_lane(commit: Commit, q: int, lane: str) -> int:
    """Let go who waits for a place of its group and can have one, in publish order, each when there is a token; how
    many."""
    if commit.db.execute("SELECT 1 FROM tampu_held WHERE q = ? AND lane = ? LIMIT 1", (q, lane)).fetchone() is None:
        return 0  # before the places are counted: of a group with thousands that takes longer than all else
    taken, waiting = taken_places(commit, q, lane)
    rows = commit.db.execute(
        "SELECT h.seq, h.run_at, h.attempts, m.rank FROM tampu_held h JOIN tampu_message m ON m.seq = h.seq"
        " WHERE h.q = ? AND h.lane = ? ORDER BY h.seq LIMIT ?",
        (q, lane, max(0, limits_of(commit, q).vacant(taken, waiting))),
    ).fetchall()
    for place, (seq, run_at, attempts, rank) in enumerate(rows, waiting + 1):
        commit.db.execute("DELETE FROM tampu_held WHERE seq = ?", (seq,))
        commit.count(q, HELD, -1)
        seat(commit, q, lane, seq)
        at = _due(commit, q, lane, place, run_at)
        commit.note("free", q, start(commit, seq, q, rank, at, attempts), seq, attempts)
    return len(rows)
