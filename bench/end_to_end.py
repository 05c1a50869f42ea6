"""One client publishes, claims and acks batches of 100, everything on disk before each call returns.

The ceiling is the least a loop of the same durability can do: insert the rows, move them to a table of leases when
they are claimed, delete them when they are acked; three commits, nothing else. The bare loop beside it does not even
record the claim: two commits, so it forgets who works on what.
"""

from __future__ import annotations

import sqlite3
from functools import partial
from pathlib import Path

import tampu
from bench.measure import PAYLOAD, Row, in_turns, rate, rates, ratio_row

WARM_UP = 50
"""Batches before the clock starts, for all sides alike: files and caches have their working size then."""


def connect(path: Path) -> sqlite3.Connection:
    db = sqlite3.connect(path, isolation_level=None, cached_statements=256, timeout=60, check_same_thread=False)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")
    return db


def ceiling(place: Path, count: int, batch: int) -> float:
    db = connect(place / "ceiling.db")
    db.execute("CREATE TABLE ready (id INTEGER PRIMARY KEY, payload BLOB)")
    db.execute("CREATE TABLE leased (id INTEGER PRIMARY KEY, payload BLOB)")

    def work(count: int = count) -> None:
        for _ in range(0, count, batch):
            db.execute("BEGIN IMMEDIATE")
            db.executemany("INSERT INTO ready (payload) VALUES (?)", [(PAYLOAD,)] * batch)
            db.execute("COMMIT")
            db.execute("BEGIN IMMEDIATE")
            rows = db.execute("SELECT id, payload FROM ready ORDER BY id LIMIT ?", (batch,)).fetchall()
            keys = [(row[0],) for row in rows]
            db.executemany("INSERT INTO leased VALUES (?, ?)", rows)
            db.executemany("DELETE FROM ready WHERE id = ?", keys)
            db.execute("COMMIT")
            db.execute("BEGIN IMMEDIATE")
            db.executemany("DELETE FROM leased WHERE id = ?", keys)
            db.execute("COMMIT")

    work(WARM_UP * batch)
    return rate(count, work)


def simple(place: Path, count: int, batch: int) -> float:
    db = connect(place / "bare.db")
    db.execute("CREATE TABLE message (id INTEGER PRIMARY KEY, payload BLOB)")

    def work(count: int = count) -> None:
        for _ in range(0, count, batch):
            db.execute("BEGIN IMMEDIATE")
            db.executemany("INSERT INTO message (payload) VALUES (?)", [(PAYLOAD,)] * batch)
            db.execute("COMMIT")
            rows = db.execute("SELECT id, payload FROM message ORDER BY id LIMIT ?", (batch,)).fetchall()
            db.execute("BEGIN IMMEDIATE")
            db.executemany("DELETE FROM message WHERE id = ?", [(row[0],) for row in rows])
            db.execute("COMMIT")

    work(WARM_UP * batch)
    return rate(count, work)


def ours(place: Path, count: int, batch: int) -> float:
    with tampu.open(place / "tampu.db") as store:

        def work(count: int = count) -> None:
            for _ in range(0, count, batch):
                store.publish_many("bench", [PAYLOAD] * batch)
                leases = store.claim("bench", limit=batch)
                store.settle([tampu.Ack(lease) for lease in leases])

        work(WARM_UP * batch)
        return rate(count, work)


def run(quick: bool) -> list[Row]:
    count, rounds = (5_000, 3) if quick else (30_000, 7)
    rows = []
    for batch, part, target in ((100, 1, "≥ 0.60"), (1, 20, ""), (1000, 1, "")):
        found = in_turns(
            {
                f"tampu, batch {batch}": partial(ours, count=count // part, batch=batch),
                f"ceiling, batch {batch}": partial(ceiling, count=count // part, batch=batch),
                f"bare loop, batch {batch}": partial(simple, count=count // part, batch=batch),
            },
            rounds if batch == 100 else 3,
        )
        rows += rates(found)
        rows.append(ratio_row(found, f"tampu, batch {batch}", f"ceiling, batch {batch}", target))
        rows.append(ratio_row(found, f"tampu, batch {batch}", f"bare loop, batch {batch}", ""))
    return rows
