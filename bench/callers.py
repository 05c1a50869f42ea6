"""64 callers at once, each publishing one message at a time, every one on disk before its call returns.

Compared with the same callers, each with its own connection and commit.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import tampu
from bench.end_to_end import connect
from bench.measure import PAYLOAD, Row, in_turns, rate, rates, ratio_row

CALLERS = 64


def _threads(work: Callable[[], None]) -> None:
    threads = [threading.Thread(target=work) for _ in range(CALLERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def own_connections(place: Path, each: int) -> float:
    first = connect(place / "own.db")
    first.execute("CREATE TABLE message (id INTEGER PRIMARY KEY, payload BLOB)")

    def work() -> None:
        db = connect(place / "own.db")
        for _ in range(each):
            db.execute("BEGIN IMMEDIATE")
            db.execute("INSERT INTO message (payload) VALUES (?)", (PAYLOAD,))
            db.execute("COMMIT")
        db.close()

    return rate(CALLERS * each, lambda: _threads(work))


def threads(place: Path, each: int) -> float:
    with tampu.open(place / "tampu.db") as store:

        def work() -> None:
            for _ in range(each):
                store.publish("bench", PAYLOAD)

        return rate(CALLERS * each, lambda: _threads(work))


def tasks(place: Path, each: int) -> float:
    async def all_of_them() -> float:
        async with tampu.open_async(place / "tampu.db") as store:

            async def work() -> None:
                for _ in range(each):
                    await store.publish("bench", PAYLOAD)

            loop = asyncio.get_running_loop()
            began = loop.time()
            await asyncio.gather(*(work() for _ in range(CALLERS)))
            return CALLERS * each / (loop.time() - began)

    return asyncio.run(all_of_them())


def run(quick: bool) -> list[Row]:
    found = in_turns(
        {
            "64 tasks": lambda p: tasks(p, 50 if quick else 300),
            "64 threads": lambda p: threads(p, 50 if quick else 300),
            "64 connections": lambda p: own_connections(p, 3 if quick else 10),
        },
        3 if quick else 7,
    )
    return [
        *rates(found),
        ratio_row(found, "64 tasks", "64 connections", "≥ 30"),
        ratio_row(found, "64 threads", "64 connections", ""),
    ]
