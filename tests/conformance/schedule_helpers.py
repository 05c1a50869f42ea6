"""What the tests of schedules share: putting one, and the ticks that fired."""

from __future__ import annotations

from typing import Any

from tampu.broker.schedules import stored
from tampu.broker.store import Store

MINUTE, HOUR, DAY = 60, 3600, 86_400


def fired(store: Store, queue: str = "jobs") -> list[str]:
    """The ticks whose messages are there, in the order they were published."""
    if queue not in store.queues.list():
        return []
    found = [m for m in store.messages(queue, limit=10_000) if stored.TICK_HEADER in m.headers]
    assert len({m.headers[stored.TICK_HEADER] for m in found}) == len(found), "a tick fired twice"
    return [m.headers[stored.TICK_HEADER][5:16] for m in found]


def put(store: Store, name: str = "s", **more: Any) -> Any:
    return store.schedules.put(name, **{"queue": "jobs", "payload": {"n": 1}, "every": MINUTE, **more})
