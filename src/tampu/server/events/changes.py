"""That something has changed, for the console: at most one event a second, however much happens.

It says which queues have changed, and nothing else: a page that shows one of them is fetched again.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from tampu.model.journal import Transition
from tampu.server.auth.grants import Caller
from tampu.server.events.tail import Tail

PAUSE_SECONDS = 1.0
_MOST_QUEUES = 100


class Changes:
    """Call `open`, then `next` repeatedly, and `close` at the end."""

    gap = None
    id = None

    def __init__(self, tail: Tail, caller: Caller, queue: str | None) -> None:
        self.caller = caller
        self._tail = tail
        self._queue = queue
        self._changed: set[str] = set()
        self._arrived = asyncio.Event()
        self._next_at = 0.0

    async def open(self) -> None:
        await self._tail.join(self._receive)

    def close(self) -> None:
        self._tail.leave(self._receive)

    @property
    def idle(self) -> bool:
        return not self._changed

    async def wait(self) -> None:
        await self._arrived.wait()

    async def next(self) -> list[tuple[Any, str | None]]:
        await asyncio.sleep(max(0.0, self._next_at - time.monotonic()))
        queues = sorted(queue for queue in self._changed if self.caller.may("view", queue))
        self._changed.clear()
        self._arrived.clear()
        if not queues:
            return []
        self._next_at = time.monotonic() + PAUSE_SECONDS
        return [({"queues": queues}, None)]

    def catch_up(self) -> None:
        """There is nothing to catch up with: an event has no position."""

    def _receive(self, transitions: list[Transition]) -> None:
        for transition in transitions:
            if transition.tenant == self.caller.tenant and self._queue in (None, transition.queue):
                if len(self._changed) < _MOST_QUEUES:
                    self._changed.add(transition.queue)
                self._arrived.set()
