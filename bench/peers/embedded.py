"""huey's SQLite storage compared with tampu: no-op jobs end to end, both with every commit on disk."""

from __future__ import annotations

from pathlib import Path

from huey import SqliteHuey

from bench.end_to_end import ours
from bench.measure import Row, in_turns, rate, rates, ratio_row


def huey(place: Path, count: int) -> float:
    """Enqueue through the task, then take and execute as huey's worker does, in this process."""
    app = SqliteHuey("bench", filename=str(place / "huey.db"), fsync=True, results=False)

    @app.task()
    def nothing(payload: str) -> None:
        del payload

    payload = "x" * 200

    def work() -> None:
        for _ in range(count):
            nothing(payload)
        for _ in range(count):
            app.execute(app.dequeue())

    return rate(count, work)


def run(quick: bool) -> list[Row]:
    count = 500 if quick else 2_000
    found = in_turns(
        {
            "tampu, batch 100": lambda p: ours(p, count * 10, 100),
            "tampu, batch 1": lambda p: ours(p, count, 1),
            "huey SQLite, fsync": lambda p: huey(p, count),
        },
        3,
    )
    return [
        *rates(found),
        ratio_row(found, "tampu, batch 100", "huey SQLite, fsync", "≥ 10"),
        ratio_row(found, "tampu, batch 1", "huey SQLite, fsync", ""),
    ]
