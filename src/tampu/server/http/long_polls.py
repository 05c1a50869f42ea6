"""Long polls: who waits here, so that a stop, a revoked key or a client that left can end the wait at once."""

from __future__ import annotations

import asyncio
from typing import Any

from tampu.broker.commit_queue.waiting_claims import WaitingClaim
from tampu.broker.core import Core, WaitForMessages
from tampu.server.auth.grants import Caller

STOPPING = "stopping"
REVOKED = "revoked"
GONE = "gone"


class PollOver(Exception):
    """The wait ended before its time; ``why`` is one of the words above."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


class Poll:
    """One caller that waits; ends by work, by time, or by `end`."""

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
        """Wait for messages; those that were claimed meanwhile are answered even if it is over."""
        self._check()
        self._waiter = WaitingClaim(step.queues, asyncio.get_running_loop(), step.claim)
        came = await core.pause_async(step, self._waiter)
        if not came:
            self._check()
        return came

    async def until(self, waiting: asyncio.Future[Any], seconds: float) -> bool:
        """Wait for something else; false when the time was over first."""
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
        """End all, and every one that comes later."""
        self.stopping = True
        for poll in list(self._polls):
            poll.end(STOPPING)

    def expire(self, now: float) -> None:
        """End those whose key or token has come to its end by itself."""
        for poll in list(self._polls):
            if poll.caller.valid_until is not None and now >= poll.caller.valid_until:
                poll.end(REVOKED)

    def revoke(self, key_id: str) -> None:
        for poll in list(self._polls):
            if poll.caller.key_id == key_id:
                poll.end(REVOKED)
