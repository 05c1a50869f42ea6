"""Async tasks on the event loop. A hand is one asyncio task that takes message after message.

A function that never waits costs no asyncio task of its own: the hand goes straight on with the next message. When a
function waits, the hand waits with it, and a spare one, which was made ready before, goes on with the others.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import time
from collections import deque
from collections.abc import Callable, Generator
from typing import Any

from tampu import tracing
from tampu.worker import endings
from tampu.worker.current import LOST, Current, enter
from tampu.worker.pools.call_task import arguments, around
from tampu.worker.prefetch import Prefetch
from tampu.worker.settle_queue import SettleQueue

_SLICE_SECONDS = 0.005
"""So long a hand goes on without letting the loop do other things."""


class _Within:
    """Awaits a coroutine in a context of its own, and tells when it first has to wait."""

    __slots__ = ("_context", "_coroutine", "_waits")

    def __init__(self, coroutine: Any, context: contextvars.Context, waits: Callable[[], None]) -> None:
        self._coroutine = coroutine
        self._context = context
        self._waits = waits

    def __await__(self) -> Generator[Any, Any, Any]:
        run, send, throw = self._context.run, self._coroutine.send, self._coroutine.throw
        try:
            found = run(send, None)
            self._waits()
            while True:
                try:
                    value = yield found
                except BaseException as error:
                    found = run(throw, error)
                else:
                    found = run(send, value)
        except StopIteration as end:
            return end.value


class AsyncPool:
    def __init__(self, settle_queue: SettleQueue, prefetch: Prefetch, concurrency: int) -> None:
        self._settle_queue = settle_queue
        self._prefetch = prefetch
        self._most = concurrency
        self._loop: asyncio.AbstractEventLoop | None = None
        self._inbox: deque[Current] = deque()
        self._async_pool: set[asyncio.Task[None]] = set()
        self._spare = False
        self._ended = 0
        self._busy = 0.0
        self.running: dict[int, Current] = {}
        """Those that wait for something, by the id of their hand."""
        self.halted = False
        """Nothing more is begun."""

    def put(self, works: list[Current]) -> None:
        """In the loop."""
        self._loop = asyncio.get_running_loop()
        self._inbox.extend(works)
        self._make_ready()

    def drain(self) -> list[Current]:
        """Take back what has not been started."""
        left = list(self._inbox)
        self._inbox.clear()
        return left

    @property
    def idle(self) -> bool:
        return not self._inbox and not self._async_pool

    def interrupt(self, work: Current) -> None:
        """From any thread. Its `_stop` says why."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._cancel, work)

    @staticmethod
    def _cancel(work: Current) -> None:
        if work._place is not None:
            work._place.cancel()

    def _make_ready(self) -> None:
        if self._inbox and not self._spare and len(self._async_pool) < self._most:
            self._spare = True
            hand = asyncio.get_running_loop().create_task(self._hand())
            self._async_pool.add(hand)
            hand.add_done_callback(self._async_pool.discard)

    async def _hand(self) -> None:
        self._spare = False
        me: Any = asyncio.current_task()
        inbox, settle_queue, clock = self._inbox, self._settle_queue, time.perf_counter
        slice_ends = clock() + _SLICE_SECONDS
        began = clock()
        while inbox and not self.halted:
            work = inbox.popleft()
            if inbox and not self._spare:
                self._make_ready()
            if work._stop is not None:  # lost or cancelled before it was begun
                settle_queue.put(work, endings.stopped(work))
                continue
            waited = False

            def waits(work: Current = work) -> None:
                nonlocal waited
                waited = True
                self._waits(work, me)

            try:
                settlement = await self._one(work, waits)
            finally:
                if waited:
                    del self.running[id(me)]
                    work._place = None
            now = clock()
            if me.cancelling():
                await self._shake_off(me)
            if waited:
                settle_queue.put(work, settlement)
                self._prefetch.ran(1, now - began, 0.0)
                began = clock()
                slice_ends = began + _SLICE_SECONDS
            else:
                settle_queue.put_later(work, settlement)
                self._ended += 1
                self._busy += now - began
                began = now
                if now > slice_ends:
                    self._tell()
                    await asyncio.sleep(0)
                    began = clock()
                    slice_ends = began + _SLICE_SECONDS
        self._tell()

    @staticmethod
    async def _shake_off(me: Any) -> None:
        """A function that was cancelled, or cancelled itself: that was for its message, not for the hand."""
        while me.cancelling():
            with contextlib.suppress(asyncio.CancelledError):  # one that has not been raised yet
                await asyncio.sleep(0)
            me.uncancel()

    def _tell(self) -> None:
        """Of what ended without waiting."""
        if self._ended:
            self._prefetch.ran(self._ended, self._busy, self._busy)
            self._ended, self._busy = 0, 0.0
            self._settle_queue.nudge()

    def _waits(self, work: Current, hand: Any) -> None:
        self._tell()
        self.running[id(hand)] = work
        work._place = hand
        if self._prefetch.began is None:
            self._prefetch.began = time.monotonic()
        if work.task.settings.timeout is not None:
            work._until = time.monotonic() + work.task.settings.timeout
        if work._stop is not None:
            hand.cancel()

    async def _one(self, work: Current, waits: Callable[[], None]) -> Any:
        """The settlement of one message, whatever the function raises: a hand that dies leaves its message leased."""
        context = contextvars.copy_context()
        context.run(enter, work)
        try:
            args, kwargs = context.run(arguments, work)
        except BaseException as error:
            return endings.not_begun(work, error)
        try:
            coroutine = work.task.function(*args, **kwargs)
            if work.task.app.running or tracing.on():
                coroutine = _surrounded(work, coroutine)
            value = await _Within(coroutine, context, waits)
        except BaseException as error:
            return endings.raised(work, error)
        return None if work._stop == LOST else endings.returned(work, value)


async def _surrounded(work: Current, coroutine: Any) -> Any:
    try:
        with around(work):
            return await coroutine
    finally:
        coroutine.close()  # a middleware may have raised before it was begun
