"""Waiting for messages to end, by following the tail of the journal while anybody waits."""

from __future__ import annotations

import asyncio

from tampu.model.journal import Transition
from tampu.model.states import has_ended
from tampu.server.events.tail import Tail


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
