"""Async tasks on the event loop. A consumer is one asyncio task that takes one message after another.

A function that never waits needs no asyncio task of its own: the consumer continues with the next message. When a
function waits, its consumer waits too, and a spare consumer, which was created before, continues with the others.
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
from tampu.worker.pools.call_task import arguments, enter_middleware
from tampu.worker.prefetch import Prefetch
from tampu.worker.settle_queue import SettleQueue

_SLICE_SECONDS = 0.005
"""How long a consumer runs before it lets the event loop do other things."""


class _InContext:
    """Awaits a coroutine in its own context, and calls back when it first has to wait."""

    __slots__ = ("_context", "_coroutine", "_on_wait")

    def __init__(self, coroutine: Any, context: contextvars.Context, on_wait: Callable[[], None]) -> None:
        self._coroutine = coroutine
        self._context = context
        self._on_wait = on_wait

    def __await__(self) -> Generator[Any, Any, Any]:
        run, send, throw = self._context.run, self._coroutine.send, self._coroutine.throw
        try:
            found = run(send, None)
            self._on_wait()
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
        self._concurrency = concurrency
        self._loop: asyncio.AbstractEventLoop | None = None
        self._inbox: deque[Current] = deque()
        self._consumers: set[asyncio.Task[None]] = set()
        self._spare = False
        self._ended = 0
        self._busy = 0.0
        self.running: dict[int, Current] = {}
        """Functions that wait for something, by the id of their consumer."""
        self.halted = False
        """True: start nothing more."""

    def put(self, works: list[Current]) -> None:
        """Called in the event loop."""
        self._loop = asyncio.get_running_loop()
        self._inbox.extend(works)
        self._add_spare()

    def drain(self) -> list[Current]:
        """Remove and return what has not been started."""
        left = list(self._inbox)
        self._inbox.clear()
        return left

    @property
    def idle(self) -> bool:
        return not self._inbox and not self._consumers

    def interrupt(self, work: Current) -> None:
        """Callable from any thread. The reason is in `Current._stop`."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._cancel, work)

    @staticmethod
    def _cancel(work: Current) -> None:
        if work._runs_in is not None:
            work._runs_in.cancel()

    def _add_spare(self) -> None:
        if self._inbox and not self._spare and len(self._consumers) < self._concurrency:
            self._spare = True
            consumer = asyncio.get_running_loop().create_task(self._consume())
            self._consumers.add(consumer)
            consumer.add_done_callback(self._consumers.discard)

    async def _consume(self) -> None:
        self._spare = False
        me: Any = asyncio.current_task()
        inbox, settle_queue, clock = self._inbox, self._settle_queue, time.perf_counter
        slice_ends = clock() + _SLICE_SECONDS
        began = clock()
        while inbox and not self.halted:
            work = inbox.popleft()
            if inbox and not self._spare:
                self._add_spare()
            if work._stop is not None:  # lost or cancelled before it was started
                settle_queue.put(work, endings.stopped(work))
                continue
            waited = False

            def on_wait(work: Current = work) -> None:
                nonlocal waited
                waited = True
                self._on_wait(work, me)

            try:
                settlement = await self._run_message(work, on_wait)
            finally:
                if waited:
                    del self.running[id(me)]
                    work._runs_in = None
            now = clock()
            if me.cancelling():
                await self._clear_cancellation(me)
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
                    self._report()
                    await asyncio.sleep(0)
                    began = clock()
                    slice_ends = began + _SLICE_SECONDS
        self._report()

    @staticmethod
    async def _clear_cancellation(me: Any) -> None:
        """The cancellation was for the function, not for the consumer: clear it."""
        while me.cancelling():
            with contextlib.suppress(asyncio.CancelledError):  # not raised yet
                await asyncio.sleep(0)
            me.uncancel()

    def _report(self) -> None:
        """Report the functions that ended without waiting."""
        if self._ended:
            self._prefetch.ran(self._ended, self._busy, self._busy)
            self._ended, self._busy = 0, 0.0
            self._settle_queue.nudge()

    def _on_wait(self, work: Current, consumer: Any) -> None:
        self._report()
        self.running[id(consumer)] = work
        work._runs_in = consumer
        if self._prefetch.began is None:
            self._prefetch.began = time.monotonic()
        if work.task.settings.timeout is not None:
            work._until = time.monotonic() + work.task.settings.timeout
        if work._stop is not None:
            consumer.cancel()

    async def _run_message(self, work: Current, on_wait: Callable[[], None]) -> Any:
        """The settlement of one message. Must not raise: a consumer that dies leaves its message leased."""
        context = contextvars.copy_context()
        context.run(enter, work)
        try:
            args, kwargs = context.run(arguments, work)
        except BaseException as error:
            return endings.not_begun(work, error)
        try:
            coroutine = work.task.function(*args, **kwargs)
            if work.task.app.running or tracing.on():
                coroutine = _with_middleware(work, coroutine)
            value = await _InContext(coroutine, context, on_wait)
        except BaseException as error:
            return endings.raised(work, error)
        return None if work._stop == LOST else endings.returned(work, value)


async def _with_middleware(work: Current, coroutine: Any) -> Any:
    try:
        with enter_middleware(work):
            return await coroutine
    finally:
        coroutine.close()  # a middleware may have raised before the coroutine started
