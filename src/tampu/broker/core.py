"""What everything on one open store shares: the engine, its coalescer, the settings, and who waits."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from tampu.broker.commit_queue.coalescers import Coalescers
from tampu.broker.commit_queue.completion import Completion
from tampu.broker.commit_queue.waiters import Waiter, Waiters
from tampu.broker.commit_queue.waiting_claims import MakeClaim, WaitingClaim, WaitingClaims
from tampu.broker.settings import SettingsCache
from tampu.engines.port import Call, Engine, PollStatus, Publish, Settle, Together
from tampu.model.errors import TampuError, Unavailable
from tampu.model.message import Message, State
from tampu.model.states import has_ended

R = TypeVar("R")
log = logging.getLogger("tampu")


class Maintenance(Protocol):
    """The loops that keep promises over time, as those see them who watch over them."""

    leads: bool
    """Is it this process whose keepers do the work?"""
    last_run_at: float
    """When they last looked for work, by the monotonic clock."""

    @property
    def alive(self) -> bool: ...


class Read:
    """A step that reads: what to ask of the engine."""

    __slots__ = ("ask",)

    def __init__(self, ask: Callable[[Engine], Any]) -> None:
        self.ask = ask


class WaitForMessages:
    """A step that waits for messages in queues, at most so long."""

    __slots__ = ("claim", "empty", "full", "mark", "queues", "seconds")

    def __init__(
        self,
        queues: list[tuple[str, str]],
        seconds: float,
        empty: list[tuple[str, str]],
        full: list[tuple[tuple[str, str], int]],
        claim: MakeClaim | None = None,
        mark: int | None = None,
    ) -> None:
        self.queues = queues
        self.seconds = seconds
        self.empty = empty
        """Those that the last claim found empty. In the others (paused, at their limit) messages may well be ready."""
        self.full = full
        """Those that were empty or had so many leased as they may."""
        self.claim = claim
        """What is waited for. When a commit took it along its reply answers the step, else None does."""
        self.mark = mark
        """What `Waiters.mark` was before the last claim; None: not known."""


class WaitForEnd:
    """A step that waits for the end of a message, at most so long; it may be over before the message has ended."""

    __slots__ = ("id", "seconds", "tenant")

    def __init__(self, tenant: str, id: str, seconds: float) -> None:
        self.tenant = tenant
        self.id = id
        self.seconds = seconds


class PublishSet:
    """A step that stores publishes to several queues: all of them, or none.

    Answered with list[Message]: one for each message that was handed in, in their order.
    """

    __slots__ = ("_order", "copies", "rows")

    def __init__(self, rows: list[Publish], copies: list[Publish], order: list[tuple[int, int]]) -> None:
        self.rows = rows
        """They store what was handed in."""
        self.copies = copies
        """They store copies that publish steps have added."""
        self._order = order
        """For each message that was handed in: its call, and its place there."""

    @property
    def calls(self) -> list[Publish]:
        return self.rows + self.copies

    @property
    def call(self) -> Publish | Together:
        """One call that stores them all, or none."""
        calls = self.calls
        return calls[0] if len(calls) == 1 else Together(calls[0].tenant, calls)

    def replies(self, reply: Any) -> list[Any]:
        """The replies of the calls, from the reply to `call`."""
        return [reply] if len(self.calls) == 1 else reply

    def messages(self, replies: Sequence[Sequence[Message]]) -> list[Message]:
        """The answer, from the replies of the calls."""
        return [replies[call][at] for call, at in self._order]


Step = Call | Read | WaitForMessages | WaitForEnd | PublishSet
Steps = Generator[Step, Any, R]
"""A verb: yields what is to be done and is sent the answer, so that threads and tasks share one definition."""


def without_errors(replies: list[Any]) -> list[Any]:
    """The replies of an engine; the first error among them is raised."""
    for reply in replies:
        if isinstance(reply, TampuError):
            raise reply
    return replies


class StepRunner:
    """Carries out the steps of verbs; here or, for a remote store, over the network."""

    closed = False

    def __init__(self) -> None:
        self.in_transaction: set[int] = set()
        """Threads inside a transaction of the engine's own connection."""

    def do(self, step: Any) -> Any:
        """Carry out one step from a thread."""
        raise NotImplementedError

    async def do_async(self, step: Any) -> Any:
        """Carry out one step from a task."""
        raise NotImplementedError

    async def leave_loop(self) -> None:
        """Let go of what belongs to the running loop."""

    def stream(self, _queue: Any, _asked: Any) -> Any:
        """A stream of leases that the store pushes; None where claims have to ask for them."""
        return None

    def drive(self, steps: Generator[Any, Any, R], do: Callable[[Any], Any] | None = None) -> R:
        """Carry out a verb from a thread."""
        do = do or self.do
        try:
            step = next(steps)
            while True:
                try:
                    answer = do(step)
                except TampuError as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(answer)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]  # the generator's own return type

    async def drive_async(self, steps: Generator[Any, Any, R], do: Callable[[Any], Awaitable[Any]] | None = None) -> R:
        """Carry out a verb from a task."""
        do = do or self.do_async
        act: Callable[[Any], Any] = steps.send
        value: Any = None
        while True:
            try:
                step = act(value)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]  # the generator's own return type
            try:
                act, value = steps.send, await do(step)
            except TampuError as error:
                act, value = steps.throw, error


class Core(StepRunner):
    def __init__(self, engine: Engine) -> None:
        super().__init__()
        self.engine = engine
        self.settings = SettingsCache(engine)
        self.waiting = Waiters()
        self._waiting_claims = WaitingClaims(self.waiting)
        self._near = "hand_over" in engine.capabilities
        """Every change is told here as it is made; none is on its way over a network."""
        self.lanes = Coalescers(engine, self._waiting_claims if self._near else None)
        self.coalescer = self.lanes.main
        self.ends = Completion(engine)
        self.on_due: Callable[[int], None] = lambda _at: None
        self.on_change: Callable[[], None] = lambda: None
        self.on_leases_expired: Callable[[Mapping[tuple[str, str], tuple[int, int]]], None] = lambda _queues: None
        self.maintenance: Maintenance | None = None
        self.watched = False
        """Somebody looks after waiters now and then, so they need not look themselves."""
        self.warned_of_priority: set[tuple[str, str]] = set()
        """Queues, as (tenant, name), that got a priority which has no effect there."""
        engine.listen(self)

    # -- Listener

    def ready(self, queues: Mapping[tuple[str, str], int]) -> None:
        self.waiting.note(queues)
        self.waiting.wake(self._waiting_claims.left(queues))

    def due(self, at_us: int) -> None:
        self.on_due(at_us)

    def leases_expired(self, queues: Mapping[tuple[str, str], tuple[int, int]]) -> None:
        self.on_leases_expired(queues)

    def on_remote_change(self) -> bool:
        self.waiting.note_all()
        try:
            self.look()
        except TampuError as error:  # the bell must go on ringing
            log.warning("could not look for messages: %s", error)
        self.on_change()
        return self.waiting.anybody

    def look(self) -> None:
        """Wake those whose queues have messages, whoever published them."""
        if self.waiting.anybody:
            self._while_open(self.poll_status)

    def poll_status(self) -> PollStatus:
        """As `look`, and with the same round trip all that keepers want to know."""
        told = self.engine.poll_status(self.waiting.queues)
        self.waiting.wake(told.ready)
        return told

    def arrived_since_claim(self, pause: WaitForMessages) -> bool:
        """What came between the last claim and joining those who wait must not be slept through."""
        return not self._unchanged(pause) and bool(self._while_open(lambda: self._ready(pause)))

    def _unchanged(self, pause: WaitForMessages) -> bool:
        """Has nobody told of anything since the claim? Then there is nothing to look for."""
        return self._near and pause.mark is not None and pause.mark == self.waiting.mark(pause.queues)

    def _ready(self, pause: WaitForMessages) -> bool:
        if pause.empty and any(self.engine.poll_status(pause.empty).ready.values()):
            return True
        return any(
            stats.counts.get(State.READY, 0) and stats.counts.get(State.LEASED, 0) < most
            for queue, most in pause.full
            for stats in self.engine.stats(*queue)
        )

    def _while_open(self, ask: Callable[[], R]) -> R | None:
        """What the engine answers; nothing when it is closed, before or meanwhile."""
        if self.closed:
            return None
        try:
            return ask()
        except Unavailable:
            if self.closed:
                return None
            raise

    # -- carrying out steps

    def do(self, step: Step) -> Any:
        if type(step) is Publish:  # first: it is asked most often
            return self.coalescer.submit(step)
        if isinstance(step, Read):
            return step.ask(self.engine)
        if isinstance(step, PublishSet):
            return step.messages(step.replies(self.coalescer.submit(step.call)))
        if isinstance(step, WaitForMessages | WaitForEnd):
            self._wait(step)
            return None
        if not isinstance(step, Settle | Together):
            return self.coalescer.submit(step)
        reply = self.lanes.of(step).submit(step)
        if self.ends.anybody:
            self.ends.stir()
        return reply

    def _wait(self, step: WaitForMessages | WaitForEnd) -> None:
        if isinstance(step, WaitForMessages):
            waiter = Waiter(step.queues, None)
            self.waiting.join(waiter)
            try:
                if not self.arrived_since_claim(step):
                    waiter.wait(step.seconds)
            finally:
                self.waiting.leave(waiter)
            return
        ended = threading.Event()
        self.ends.expect(step.tenant, step.id, ended.set)
        try:
            if not self._has_ended(step):
                ended.wait(step.seconds)
        finally:
            self.ends.forget(step.tenant, step.id, ended.set)

    def _has_ended(self, step: WaitForEnd) -> bool:
        """What ended between the last look and the expectation must not be waited for."""
        found = self.engine.get(step.tenant, step.id)
        return found is None or has_ended(found.state)

    async def do_async(self, step: Step) -> Any:
        if type(step) is Publish:
            return await self.coalescer.submit_async(step)
        if isinstance(step, Read):
            return await asyncio.to_thread(step.ask, self.engine)
        if isinstance(step, WaitForMessages):
            return await self.pause_async(step, WaitingClaim(step.queues, asyncio.get_running_loop(), step.claim))
        if isinstance(step, WaitForEnd):
            await self._expect_async(step)
            return None
        if isinstance(step, PublishSet):
            return step.messages(step.replies(await self.coalescer.submit_async(step.call)))
        reply = await self.coalescer.submit_async(step)
        if self.ends.anybody and isinstance(step, Settle | Together):
            self.ends.stir()
        return reply

    async def _expect_async(self, step: WaitForEnd) -> None:
        loop, ended = asyncio.get_running_loop(), asyncio.Event()

        def tell() -> None:
            with contextlib.suppress(RuntimeError):  # its loop was closed
                loop.call_soon_threadsafe(ended.set)

        await asyncio.to_thread(self.ends.expect, step.tenant, step.id, tell)
        try:
            if not await asyncio.to_thread(self._has_ended, step):
                async with asyncio.timeout(step.seconds):
                    await ended.wait()
        except TimeoutError:
            return
        finally:
            self.ends.forget(step.tenant, step.id, tell)

    async def pause_async(self, step: WaitForMessages, waiter: WaitingClaim) -> Any:
        """Wait for messages; whoever holds the waiter can end it sooner. The step's answer."""
        self.waiting.join(waiter)
        try:
            if self._unchanged(step) or not await asyncio.to_thread(self.arrived_since_claim, step):
                await waiter.wait_async(step.seconds)
        except BaseException:
            self.waiting.leave(waiter)
            waiter.abandon(self.coalescer)
            raise
        self.waiting.leave(waiter)
        return await waiter.reply(self.coalescer)
