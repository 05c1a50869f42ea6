"""The tail of the journal, read once per node for all subscribers, while there are any.

What was done through this node is read at once, what other processes did within a quarter of a second. The cost does
not depend on the number of subscribers; an idle store is read a few times a second.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from tampu.broker.core import Core
from tampu.broker.journal_cursor import JournalCursor
from tampu.model.errors import TampuError
from tampu.model.journal import JournalPage, Position, Transition
from tampu.model.states import has_ended
from tampu.server.auth.grants import Caller
from tampu.server.listings import Listings

_BUSY_SECONDS = 0.02
"""Minimum pause between two reads, so that a busy node reads pages, not single entries."""
_QUIET_SECONDS = 0.25
Sink = Callable[[list[Transition]], None]
log = structlog.get_logger("tampu.server")


class Tail:
    def __init__(self, core: Core, listings: Listings) -> None:
        self._core = core
        self._listings = listings
        self._sinks: set[Sink] = set()
        self._reader: asyncio.Task[None] | None = None
        self._woken = asyncio.Event()
        self.position: Position = {}
        """The position after the last event the sinks got. While a page is being read, the cursor is ahead of it."""

    def __len__(self) -> int:
        return len(self._sinks)

    def wake(self) -> None:
        """Read soon: something was done through this node."""
        if self._sinks:
            self._woken.set()

    async def join(self, sink: Sink) -> Position:
        """Send ``sink`` everything after the returned position, without gaps or repeats."""
        if not self._running:
            cursor = await asyncio.to_thread(JournalCursor, self._core.engine)
            if not self._running:
                self.position = cursor.position
                self._reader = asyncio.create_task(self._follow(cursor), name="tampu-tail")
        self._sinks.add(sink)
        return dict(self.position)

    def leave(self, sink: Sink) -> None:
        self._sinks.discard(sink)

    async def read(self, caller: Caller, after: Position, limit: int, tenant: str | None = None) -> JournalPage:
        """A page for one subscriber that is behind."""
        engine = self._core.engine
        return await self._listings.call(caller, engine.journal, after or None, limit, tenant, refuse=False)

    @property
    def _running(self) -> bool:
        return self._reader is not None and not self._reader.done()

    async def _follow(self, cursor: JournalCursor) -> None:
        await self._rest()  # `join` has just read the end of the journal
        while self._sinks and not self._core.closed:
            self._woken.clear()
            try:
                moves = await asyncio.to_thread(cursor.read)
            except TampuError as error:
                log.warning("store_unreachable", error=str(error))
                await asyncio.sleep(_QUIET_SECONDS)
                continue
            self.position = cursor.position
            if moves:
                for sink in list(self._sinks):
                    sink(moves)
            if not cursor.more:
                await self._rest()

    async def _rest(self) -> None:
        await asyncio.sleep(_BUSY_SECONDS)
        try:
            async with asyncio.timeout(_QUIET_SECONDS - _BUSY_SECONDS):
                await self._woken.wait()
        except TimeoutError:
            return


class Completion:
    """Wakes the callers that wait for a message when it ends."""

    def __init__(self, tail: Tail) -> None:
        self._tail = tail
        self._waiting: dict[tuple[str, str], set[asyncio.Future[None]]] = {}

    async def expect(self, tenant: str, id: str) -> asyncio.Future[None]:
        """A future, done when the message ends from now on. Read the message after this call: it may have ended."""
        await self._tail.join(self._receive)
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault((tenant, id), set()).add(future)
        return future

    def forget(self, tenant: str, id: str, future: asyncio.Future[None]) -> None:
        waiting = self._waiting.get((tenant, id))
        if waiting is not None:
            waiting.discard(future)
            if not waiting:
                del self._waiting[tenant, id]
        if not self._waiting:
            self._tail.leave(self._receive)

    def _receive(self, transitions: list[Transition]) -> None:
        for transition in transitions:
            if has_ended(transition.state):
                for future in self._waiting.get((transition.tenant, transition.id), ()):
                    if not future.done():
                        future.set_result(None)
