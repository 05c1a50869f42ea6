"""Claims that wait, carried out by the very commit that brings their messages.

A claim that found nothing waits. The next commit that stores messages in its queue takes it along, so that they are
leased in the commit of their publish: the worker has them a commit and a turn of the loop sooner, and the disk has one
commit less. Who was taken along counts among those whom the commit wakes. Only for tasks, and for engines that carry
out the calls of a run in one commit, claims last: the capability ``hand_over``.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tampu.broker.commit_queue.coalescer import Coalescer, Ticket
from tampu.broker.commit_queue.waiters import Queue, Waiter, Waiters
from tampu.engines.port import Claim, Publish

MakeClaim = Callable[[], Claim | None]
"""The claim as it is to be made now; None when that is not known without asking the store."""


class WaitingClaim(Waiter):
    """A task that waits to claim; to the coalescer, the one to tell of its call."""

    def __init__(self, queues: Iterable[Queue], loop: asyncio.AbstractEventLoop, claim: MakeClaim | None) -> None:
        super().__init__(queues, loop)
        self._claim = claim
        self._at = loop
        self._ticket: Ticket | None = None
        self._told = asyncio.Event()

    @property
    def woken(self) -> bool:
        return self._woken or self._ticket is not None

    def join(self, batch: list[Ticket]) -> bool:
        """Have the claim carried out with these calls, if it can be."""
        claim = None if self._claim is None else self._claim()
        if claim is None:
            return False
        ticket = Ticket(claim, future=self)
        batch.append(ticket)  # first: what is in the batch is answered, whatever happens
        self._ticket = ticket
        return True

    # -- as a future is told

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._at

    def done(self) -> bool:
        return self._told.is_set()

    def set_result(self, _reply: Any, /) -> None:
        self._told.set()
        self._event.set()

    # -- for who waits, and has left the line

    async def reply(self, coalescer: Coalescer) -> Any:
        """What came of the claim; None when no commit took it along."""
        if self._ticket is None:
            return None
        try:
            await self._told.wait()
        except asyncio.CancelledError:
            self.abandon(coalescer)
            raise
        # An error was of the whole commit, and not for this claim: it is made again, by itself.
        return None if isinstance(self._ticket.reply, BaseException) else self._ticket.reply

    def abandon(self, coalescer: Coalescer) -> None:
        """Nobody will ask for the reply."""
        if self._ticket is not None:
            coalescer.abandon(self._ticket)


class WaitingClaims:
    def __init__(self, waiting: Waiters) -> None:
        self._waiting = waiting
        self._leader = 0
        self._taken: dict[Queue, int] = {}

    def attach_waiting_claims(self, batch: list[Ticket]) -> None:
        """Add the claims that wait for what this batch publishes."""
        if not self._waiting.anybody:
            return
        coming: dict[Queue, int] = {}
        for call in (ticket.call for ticket in batch):
            if type(call) is Publish:
                queue = (call.tenant, call.queue)
                coming[queue] = coming.get(queue, 0) + _ready_at_once(call)

        def take(queue: Queue, waiter: Waiter) -> None:
            if isinstance(waiter, WaitingClaim) and waiter.join(batch):
                self._taken[queue] = self._taken.get(queue, 0) + 1

        self._leader = threading.get_ident()
        self._waiting.take(coming, take)

    def done(self) -> None:
        """The commit is over."""
        self._leader, self._taken = 0, {}

    def left(self, queues: Mapping[Queue, int]) -> Mapping[Queue, int]:
        """How many are to be woken still, where so many messages are ready now."""
        if not self._taken or self._leader != threading.get_ident():  # not of the commit that took them along
            return queues
        return {queue: count - self._taken.get(queue, 0) for queue, count in queues.items()}


def _ready_at_once(call: Publish) -> int:
    """How many can be claimed as soon as they are stored, as far as can be said before."""
    if call.simple:
        return len(call.items)
    return sum(item.delay_us is None and item.run_us is None and not item.body.hold for item in call.items)
