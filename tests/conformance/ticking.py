"""What the tests of schedules share: putting one, and the ticks that fired."""

from __future__ import annotations

from typing import Any

from tampu.broker import scheduled
from tampu.broker.queue import Queue

MINUTE, HOUR, DAY = 60, 3600, 86_400


def fired(q: Queue, queue: str = "jobs") -> list[str]:
    """The ticks whose messages are there, in the order they were published."""
    if queue not in q.queues.list():
        return []
    found = [m for m in q.messages(queue, limit=10_000) if scheduled.TICK_HEADER in m.headers]
    assert len({m.headers[scheduled.TICK_HEADER] for m in found}) == len(found), "a tick fired twice"
    return [m.headers[scheduled.TICK_HEADER][5:16] for m in found]


def put(q: Queue, name: str = "s", **more: Any) -> Any:
    return q.schedules.put(name, **{"queue": "jobs", "payload": {"n": 1}, "every": MINUTE, **more})
