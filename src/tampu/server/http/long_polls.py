"""Long polls: a list of waiting callers, so that shutdown, a revoked key or a lost client ends the wait at once."""

from __future__ import annotations

import asyncio
from typing import Any

from tampu.broker.commit_queue.waiters import WaitingClaim
from tampu.broker.core import Core, WaitForMessages
from tampu.server.auth.grants import Caller

STOPPING = "stopping"
REVOKED = "revoked"
GONE = "gone"


class PollOver(Exception):
    """The wait was ended early; ``why`` is STOPPING, REVOKED or GONE."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


class Poll:
    """One waiting caller. The wait ends with a message, at its timeout, or by `end`."""

    def __init__(self, caller: Caller) -> None:
        self.caller = caller
        self.over: str | None = None
        self._ended = asyncio.Event()
        self._waiter: WaitingClaim | None = None

    def end(self, why: str) -> None:
        self.over = self.over or why
        self._ended.set()
        if self._waiter is not None:
            self._waiter.wake()

    async def pause(self, core: Core, step: WaitForMessages) -> Any:
        """Wait for messages. Returns those that were claimed, even if the poll was ended meanwhile."""
        self._check()
        self._waiter = WaitingClaim(step.queues, asyncio.get_running_loop(), step.claim)
        arrived = await core.pause_async(step, self._waiter)
        if not arrived:
            self._check()
        return arrived

    async def until(self, waiting: asyncio.Future[Any], seconds: float) -> bool:
        """Wait for a future; False if the time is over first."""
        self._check()
        ended = asyncio.ensure_future(self._ended.wait())
        try:
            done, _ = await asyncio.wait({waiting, ended}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ended.cancel()
        self._check()
        return waiting in done

    def _check(self) -> None:
        if self.over is not None:
            raise PollOver(self.over)


class Polls:
    def __init__(self) -> None:
        self._polls: set[Poll] = set()
        self.stopping = False

    def __len__(self) -> int:
        return len(self._polls)

    def join(self, poll: Poll) -> None:
        self._polls.add(poll)
        if self.stopping:
            poll.end(STOPPING)

    def leave(self, poll: Poll) -> None:
        self._polls.discard(poll)

    def stop(self) -> None:
        """End all polls, and every later one at once."""
        self.stopping = True
        for poll in list(self._polls):
            poll.end(STOPPING)

    def expire(self, now: float) -> None:
        """End the polls whose key or token has expired."""
        for poll in list(self._polls):
            if poll.caller.valid_until is not None and now >= poll.caller.valid_until:
                poll.end(REVOKED)

    def revoke(self, key_id: str) -> None:
        for poll in list(self._polls):
            if poll.caller.key_id == key_id:
                poll.end(REVOKED)
