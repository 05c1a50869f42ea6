"""Long reads: listings, searches, the journal. They run in threads of their own, a few for each caller.

So they delay neither key checks nor ``/ready`` nor publishes, nor for long the listings of other callers.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

from tampu.broker.core import Core, Read, Steps
from tampu.model.errors import RateLimited
from tampu.server.auth.grants import Caller

if TYPE_CHECKING:
    from tampu.server.budget import Budget

R = TypeVar("R")
THREADS = 8
THREADS_OF_CALLER = 2
MAX_WAITING = 16
"""Reads of a caller that wait for their turn; more are answered 429."""


class _Share:
    """What one caller has."""

    __slots__ = ("reads", "turns")

    def __init__(self) -> None:
        self.turns = asyncio.Semaphore(THREADS_OF_CALLER)
        self.reads = 0
        """Running or waiting."""


class Listings:
    def __init__(self, core: Core, budget: Budget) -> None:
        self._core = core
        self._budget = budget.listings
        self._submitted = 0
        budget.threads.measure = lambda: min(self._submitted, THREADS)
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="tampu-listing")
        self._shares: dict[str, _Share] = {}

    @property
    def reads(self) -> int:
        """Reads that run or wait."""
        return sum(share.reads for share in self._shares.values())

    async def drive(self, caller: Caller, steps: Steps[R]) -> R:
        """Carry out a verb that reads much. It can be cancelled between two reads."""

        async def do(step: Any) -> Any:
            if isinstance(step, Read):
                return await self.call(caller, step.query, self._core.engine)
            return await self._core.do_async(step)

        return await self._core.drive_async(steps, do)

    async def call(self, caller: Caller, work: Callable[..., R], *arguments: Any, refuse: bool = True) -> R:
        """Call a function that reads much. Its thread counts until it is done, also if nobody waits any more.

        ``refuse``: raise `RateLimited` if too many wait. Feeds wait: there are no more than connections.
        """
        name = caller.bucket or caller.tenant
        share = self._shares.get(name) or _Share()
        if refuse and share.reads >= THREADS_OF_CALLER + MAX_WAITING:
            raise RateLimited("too many listings at once", retry_after=1.0, hint="wait for the answers to the others")
        if refuse:
            self._budget.take()
        self._shares[name] = share
        share.reads += 1
        try:
            await share.turns.acquire()
        except BaseException:
            self._leave(name, share, refuse)
            raise
        loop = asyncio.get_running_loop()
        self._submitted += 1
        future = self._pool.submit(contextvars.copy_context().run, work, *arguments)

        def done() -> None:
            self._submitted -= 1
            share.turns.release()
            self._leave(name, share, refuse)

        def notify(_: Any) -> None:
            with contextlib.suppress(RuntimeError):  # the loop was closed
                loop.call_soon_threadsafe(done)

        future.add_done_callback(notify)
        return await asyncio.wrap_future(future)

    def _leave(self, name: str, share: _Share, counted: bool) -> None:
        if counted:
            self._budget.give()
        share.reads -= 1
        if not share.reads:
            del self._shares[name]

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
