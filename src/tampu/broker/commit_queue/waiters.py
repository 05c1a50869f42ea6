"""Callers that wait for messages, and how they are woken: one per message that became ready. Nobody polls.

A task that waits to claim can do better than being woken (`WaitingClaim`): its claim is carried out in the commit that
stores the messages. It has them sooner, and the disk writes one commit less. This is only for tasks, and for engines
that run all calls of a batch in one commit, claims last: the capability ``hand_over``.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from tampu.broker.commit_queue.coalescer import Coalescer, Ticket
from tampu.engines.port import Claim, Publish

Queue = tuple[str, str]
"""(tenant, name)"""
MakeClaim = Callable[[], Claim | None]
"""Builds the claim to make now; None if that needs a read of the store."""
_MOST_NOTED = 10_000


class Waiter:
    """One caller, a thread or a task of an event loop, that waits for messages in some queues."""

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
    """All callers that wait, by queue, longest waiting first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiters: dict[Queue, deque[Waiter]] = {}
        self.in_use = False
        """Somebody has waited, or is about to. Until then there is nothing to note and nobody to wake."""
        self._noted: dict[Queue, int] = {}
        self._noted_all = 0
        self._leader = 0
        self._claimed: dict[Queue, int] = {}
        """Messages that the commit of the thread `_leader` claims for waiting tasks."""

    def note(self, queues: Iterable[Queue]) -> None:
        """Count that messages may have become ready in these queues. Called before any waiter is woken."""
        with self._lock:
            if len(self._noted) > _MOST_NOTED:
                self._noted_all += sum(self._noted.values())
                self._noted.clear()
            for queue in queues:
                self._noted[queue] = self._noted.get(queue, 0) + 1

    def note_all(self) -> None:
        """Count that messages may have become ready in any queue."""
        with self._lock:
            self._noted_all += 1

    def mark(self, queues: Iterable[Queue]) -> int:
        """A number that grows whenever messages may have become ready in one of these queues."""
        with self._lock:
            self.in_use = True
            return self._noted_all + sum([self._noted.get(queue, 0) for queue in queues])

    @property
    def anybody(self) -> bool:
        return bool(self._waiters)

    @property
    def queues(self) -> list[Queue]:
        """Queues that have a waiter."""
        with self._lock:
            return list(self._waiters)

    def join(self, waiter: Waiter) -> None:
        with self._lock:
            self.in_use = True
            for queue in waiter.queues:
                self._waiters.setdefault(queue, deque()).append(waiter)

    def leave(self, waiter: Waiter) -> None:
        with self._lock:
            for queue in waiter.queues:
                waiters = self._waiters.get(queue)
                if waiters is not None and waiter in waiters:
                    waiters.remove(waiter)
                    if not waiters:
                        del self._waiters[queue]

    def wake(self, queues: Mapping[Queue, int]) -> None:
        """Wake one waiter for each message that is ready in these queues, longest waiting first."""
        if not self._waiters:
            return
        with self._lock:
            for queue, count in queues.items():
                for waiter in self._next(queue, count):
                    waiter.wake()

    # -- claims in the commit that stores their messages

    def attach_claims(self, batch: list[Ticket]) -> None:
        """Add the claims of tasks that wait for messages which this batch publishes."""
        if not self._waiters:
            return
        arriving: dict[Queue, int] = {}
        for call in (ticket.call for ticket in batch):
            if type(call) is Publish:
                queue = (call.tenant, call.queue)
                arriving[queue] = arriving.get(queue, 0) + _ready_at_once(call)
        self._leader = threading.get_ident()
        with self._lock:
            for queue, count in arriving.items():
                for waiter in list(self._next(queue, count)):
                    if isinstance(waiter, WaitingClaim) and waiter.join(batch):
                        self._claimed[queue] = self._claimed.get(queue, 0) + 1

    def commit_ended(self) -> None:
        self._leader, self._claimed = 0, {}

    def became_ready(self, queues: Mapping[Queue, int]) -> None:
        """Wake waiters after a commit: one for each new message, less the claims that this commit carried out."""
        self.note(queues)
        if self._claimed and self._leader == threading.get_ident():  # not another commit
            queues = {queue: count - self._claimed.get(queue, 0) for queue, count in queues.items()}
        self.wake(queues)

    def _next(self, queue: Queue, count: int) -> Iterator[Waiter]:
        asleep = (waiter for waiter in self._waiters.get(queue, ()) if not waiter.woken)
        return itertools.islice(asleep, max(0, count))

    def wake_all(self) -> None:
        with self._lock:
            for waiters in self._waiters.values():
                for waiter in waiters:
                    waiter.wake()


class WaitingClaim(Waiter):
    """A task that waits to claim. For the coalescer it is the future of its claim."""

    def __init__(self, queues: Iterable[Queue], loop: asyncio.AbstractEventLoop, claim: MakeClaim | None) -> None:
        super().__init__(queues, loop)
        self._claim = claim
        self._claim_loop = loop
        self._ticket: Ticket | None = None
        self._answered = asyncio.Event()

    @property
    def woken(self) -> bool:
        return self._woken or self._ticket is not None

    def join(self, batch: list[Ticket]) -> bool:
        """Add the claim to a batch of calls; false if it cannot be built without reading the store."""
        claim = None if self._claim is None else self._claim()
        if claim is None:
            return False
        ticket = Ticket(claim, future=self)
        batch.append(ticket)  # first: a call in the batch is answered, whatever happens
        self._ticket = ticket
        return True

    # -- the coalescer's `Future`

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._claim_loop

    def done(self) -> bool:
        return self._answered.is_set()

    def set_result(self, _reply: Any, /) -> None:
        self._answered.set()
        self._event.set()

    # -- for the waiting task, after it left `Waiters`

    async def reply(self, coalescer: Coalescer) -> Any:
        """The reply to the claim; None if no commit included it."""
        if self._ticket is None:
            return None
        try:
            await self._answered.wait()
        except asyncio.CancelledError:
            self.abandon(coalescer)
            raise
        # An error here is the whole commit's: the caller makes the claim again, on its own.
        return None if isinstance(self._ticket.reply, BaseException) else self._ticket.reply

    def abandon(self, coalescer: Coalescer) -> None:
        """The task was cancelled: give back what was claimed for it."""
        if self._ticket is not None:
            coalescer.abandon(self._ticket)


def _ready_at_once(call: Publish) -> int:
    """How many of the messages will be ready when they are stored, as far as the call shows."""
    if call.simple:
        return len(call.items)
    return sum(item.delay_us is None and item.run_us is None and not item.hold for item in call.items)
