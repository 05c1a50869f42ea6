"""The ready index. A row is a run: messages that were published together, with sequence numbers from seq to last.

A batch of a hundred is added as one row and claimed as one row. Taking a single message out of a run splits the run.
In a run of several messages, position and sequence number are the same. A message that returns to ready is a run of its
own, at its new position.
"""

from __future__ import annotations

from typing import Any, Protocol

from tampu.engines.sqlite.database import sql_of
from tampu.engines.sqlite.ids import STEP


class Db(Protocol):
    def execute(self, sql: str, parameters: Any = ...) -> Any: ...


Run = tuple[int, int, int, int, int | None, int]
"""(rank, pos, seq, attempts, lease, last)"""
Row = tuple[int, int, int, int, int, int | None, int]
"""A queue number and a run of that queue."""

INSERT = sql_of("insert_run")
_FIND, _DELETE, _DELETE_UPTO = sql_of("find_run"), sql_of("delete_run"), sql_of("delete_runs_upto")
_FIRST, _AT, _NEXT = sql_of("first_runs"), sql_of("run_at"), sql_of("next_runs")


def find(db: Db, q: int, seq: int) -> Run | None:
    """The run a message is in, if it is ready."""
    run: Run | None = db.execute(_FIND, (q, seq)).fetchone()
    if run is None:
        return None
    _, _, first, _, _, last = run
    return run if last >= seq and not (seq - first) % STEP else None


def take(db: Db, q: int, seq: int) -> Run | None:
    """Take one message out of the index. Returns the run it was in."""
    run = find(db, q, seq)
    if run is not None:
        rank, pos, first, attempts, lease, last = run
        db.execute(_DELETE, (q, rank, pos))
        if first < seq:
            db.execute(INSERT, (q, rank, pos, first, attempts, lease, seq - STEP))
        if seq < last:
            db.execute(INSERT, (q, rank, seq + STEP, seq + STEP, attempts, lease, last))
    return run


def take_first(db: Db, q: int, seq: int) -> None:
    """Take out this message and all before it, in the order of the index."""
    run = find(db, q, seq)
    assert run is not None
    rank, pos, _, attempts, lease, last = run
    db.execute(_DELETE_UPTO, (q, rank, pos))
    if seq < last:
        db.execute(INSERT, (q, rank, seq + STEP, seq + STEP, attempts, lease, last))


def page(db: Db, q: int, after: tuple[int, int] | None, limit: int) -> list[tuple[int, int, int]]:
    """(seq, rank, pos) of messages in the order of delivery, after the (rank, pos) of another."""
    if after is None:
        runs = db.execute(_FIRST, (q, limit)).fetchall()
    else:
        runs = db.execute(_AT, (q, *after)).fetchall() + db.execute(_NEXT, (q, *after, limit)).fetchall()
    found: list[tuple[int, int, int]] = []
    for rank, pos, seq, _, _, last in runs:
        for number in range(seq, last + 1, STEP):
            number_pos = pos + number - seq
            if after is None or (rank, number_pos) > after:
                found.append((number, rank, number_pos))
                if len(found) == limit:
                    return found
    return found
