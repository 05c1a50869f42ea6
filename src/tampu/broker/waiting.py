"""Who waits for messages, and how they are woken: as many as there are messages, no one polls."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

Queue = tuple[str, str]


class Waiter:
    """One caller that waits on some queues; a thread, or a task of a loop."""

    def __init__(self, queues: Iterable[Queue], loop: asyncio.AbstractEventLoop | None) -> None:
        self.queues = tuple(queues)
        self._loop = loop
        self._woken = False
        self._event: Any = threading.Event() if loop is None else asyncio.Event()

    def wake(self) -> None:
        self._woken = True
        if self._loop is None:
            self._event.set()
        else:
            with contextlib.suppress(RuntimeError):  # its loop was closed
                self._loop.call_soon_threadsafe(self._event.set)

    @property
    def woken(self) -> bool:
        return self._woken

    def wait(self, seconds: float) -> None:
        self._event.wait(seconds)

    async def wait_async(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._event.wait(), seconds)
        except TimeoutError:
            return


class Waiting:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiters: dict[Queue, deque[Waiter]] = {}

    @property
    def anybody(self) -> bool:
        return bool(self._waiters)

    def join(self, waiter: Waiter) -> None:
        with self._lock:
            for queue in waiter.queues:
                self._waiters.setdefault(queue, deque()).append(waiter)

    def leave(self, waiter: Waiter) -> None:
        with self._lock:
            for queue in waiter.queues:
                line = self._waiters.get(queue)
                if line is not None and waiter in line:
                    line.remove(waiter)
                    if not line:
                        del self._waiters[queue]

    def wake(self, queues: Mapping[Queue, int]) -> None:
        """So many messages are ready in these queues: wake as many, longest waiting first."""
        if not self._waiters:
            return
        with self._lock:
            for queue, count in queues.items():
                asleep = (waiter for waiter in self._waiters.get(queue, ()) if not waiter.woken)
                for waiter in itertools.islice(asleep, count):
                    waiter.wake()

    def look(self, ready: Callable[[Queue], int]) -> None:
        """Wake by looking, for what no wake-up told of."""
        if self._waiters:
            with self._lock:
                queues = list(self._waiters)
            self.wake({queue: ready(queue) for queue in queues})

    def wake_all(self) -> None:
        with self._lock:
            for line in self._waiters.values():
                for waiter in line:
                    waiter.wake()
