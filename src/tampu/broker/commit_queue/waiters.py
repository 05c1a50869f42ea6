"""Who waits for messages, and how they are woken: as many as there are messages, no one polls."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

Queue = tuple[str, str]
_MOST_NOTED = 10_000


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
            async with asyncio.timeout(seconds):
                await self._event.wait()
        except TimeoutError:
            return


class Waiters:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiters: dict[Queue, deque[Waiter]] = {}
        self._noted: dict[Queue, int] = {}
        self._noted_all = 0

    def note(self, queues: Iterable[Queue]) -> None:
        """Messages became ready in these queues, or may have; told before anybody is woken."""
        with self._lock:
            if len(self._noted) > _MOST_NOTED:
                self._noted_all += sum(self._noted.values())
                self._noted.clear()
            for queue in queues:
                self._noted[queue] = self._noted.get(queue, 0) + 1

    def note_all(self) -> None:
        """They may have in any queue."""
        with self._lock:
            self._noted_all += 1

    def mark(self, queues: Iterable[Queue]) -> int:
        """A number that grows when something is noted of these queues."""
        with self._lock:
            return self._noted_all + sum([self._noted.get(queue, 0) for queue in queues])

    @property
    def anybody(self) -> bool:
        return bool(self._waiters)

    @property
    def queues(self) -> list[Queue]:
        """Those that somebody waits on."""
        with self._lock:
            return list(self._waiters)

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
                for waiter in self._next(queue, count):
                    waiter.wake()

    def take(self, queues: Mapping[Queue, int], take: Callable[[Queue, Waiter], None]) -> None:
        """Before so many messages become ready in these queues: see whom they will wake."""
        if not self._waiters:
            return
        with self._lock:
            for queue, count in queues.items():
                for waiter in list(self._next(queue, count)):
                    take(queue, waiter)

    def _next(self, queue: Queue, count: int) -> Iterator[Waiter]:
        asleep = (waiter for waiter in self._waiters.get(queue, ()) if not waiter.woken)
        return itertools.islice(asleep, max(0, count))

    def wake_all(self) -> None:
        with self._lock:
            for line in self._waiters.values():
                for waiter in line:
                    waiter.wake()
