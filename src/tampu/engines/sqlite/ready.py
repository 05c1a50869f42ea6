"""The ready index. A row is a run: messages that were published together and follow each other, from seq to last.

A batch of a hundred enters as one row and leaves by a claim as one row. A run whose messages are taken one by one is
cut around them. In a run of more than one, position and sequence number are the same; a message that comes back is a
run of its own, at the position it came back to.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

from tampu.engines.sqlite.ids import STEP

Run = tuple[int, int, int, int, int | None, int]
"""(rank, pos, seq, attempts, lease, last)"""
Row = tuple[int, int, int, int, int, int | None, int]
"""A run and, before it, its queue."""

INSERT = "INSERT INTO tampu_ready VALUES (?, ?, ?, ?, ?, ?, ?)"
# The run that begins at a message or last before it: the only one that can hold it.
FIND = (
    "SELECT rank, pos, seq, attempts, lease, last FROM tampu_ready INDEXED BY tampu_ready_seq"
    " WHERE q = ? AND seq <= ? ORDER BY seq DESC LIMIT 1"
)
BEFORE = (
    "SELECT rank, pos, seq, attempts, lease, last FROM tampu_ready"
    " WHERE q = ? AND (rank, pos) <= (?, ?) ORDER BY rank DESC, pos DESC LIMIT 1"
)
FIRST = "SELECT rank, pos, seq, attempts, lease, last FROM tampu_ready WHERE q = ? ORDER BY rank, pos LIMIT ?"
FURTHER = (
    "SELECT rank, pos, seq, attempts, lease, last FROM tampu_ready"
    " WHERE q = ? AND (rank, pos) > (?, ?) ORDER BY rank, pos LIMIT ?"
)
LEAVE = "DELETE FROM tampu_ready WHERE q = ? AND (rank, pos) <= (?, ?)"
_LEAVE_ONE = "DELETE FROM tampu_ready WHERE q = ? AND rank = ? AND pos = ?"


def enter(db: sqlite3.Connection, rows: Iterable[Row]) -> None:
    db.executemany(INSERT, rows)


def find(db: sqlite3.Connection, q: int, seq: int) -> Run | None:
    """The run a message is in, if it is ready."""
    run: Run | None = db.execute(FIND, (q, seq)).fetchone()
    return run if run is not None and run[5] >= seq and not (seq - run[2]) % STEP else None


def take(db: sqlite3.Connection, q: int, seq: int) -> Run | None:
    """Cut one message out of the index; the run it was in."""
    run = find(db, q, seq)
    if run is not None:
        rank, pos, first, attempts, lease, last = run
        db.execute(_LEAVE_ONE, (q, rank, pos))
        if first < seq:
            db.execute(INSERT, (q, rank, pos, first, attempts, lease, seq - STEP))
        if seq < last:
            db.execute(INSERT, (q, rank, seq + STEP, seq + STEP, attempts, lease, last))
    return run


def take_first(db: sqlite3.Connection, q: int, seq: int) -> None:
    """Cut off everything up to and with this message, in the order of the index."""
    run = find(db, q, seq)
    assert run is not None
    rank, pos, _, attempts, lease, last = run
    db.execute(LEAVE, (q, rank, pos))
    if seq < last:
        db.execute(INSERT, (q, rank, seq + STEP, seq + STEP, attempts, lease, last))


def page(db: sqlite3.Connection, q: int, after: tuple[int, int] | None, limit: int) -> list[tuple[int, int, int]]:
    """(seq, rank, pos) in the order of delivery, after a place."""
    if after is None:
        runs = db.execute(FIRST, (q, limit)).fetchall()
    else:
        runs = db.execute(BEFORE, (q, *after)).fetchall() + db.execute(FURTHER, (q, *after, limit)).fetchall()
    found: list[tuple[int, int, int]] = []
    for rank, pos, seq, _, _, last in runs:
        for number in range(seq, last + 1, STEP):
            place = pos + number - seq
            if after is None or (rank, place) > after:
                found.append((number, rank, place))
                if len(found) == limit:
                    return found
    return found
