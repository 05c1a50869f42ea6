"""The core of an open store: `Core` has its engine, coalescer, settings and waiters, and carries out steps.

A verb, such as `claim`, is written once, as a generator of steps (`Steps`). It yields a step, and is sent the answer.
`StepRunner.drive` carries out the steps for a thread, `drive_async` for a task; a remote store has its own runner. The
steps are the calls of `tampu.engines.port`, and four more: `Read`, `WaitForMessages`, `WaitForEnd` and `PublishSet`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from msgspec import structs

from tampu.broker.agents.stored import Report
from tampu.broker.commit_queue.completion import Completion
from tampu.broker.commit_queue.parallel_settle import CommitQueues
from tampu.broker.commit_queue.waiters import MakeClaim, Waiter, Waiters, WaitingClaim
from tampu.broker.settings import SettingsCache
from tampu.engines.port import Call, Engine, PollStatus, Publish, Settle, Together
from tampu.model.errors import TampuError, Unavailable
from tampu.model.message import Message, State
from tampu.model.states import has_ended

R = TypeVar("R")
log = logging.getLogger("tampu")


class Maintenance(Protocol):
    """The maintenance tasks, as health checks see them."""

    leads: bool
    """True if this process is the leader, whose tasks do the work."""
    last_run_at: float
    """When the tasks last looked for work, by the monotonic clock."""

    @property
    def alive(self) -> bool: ...

    def reports(self) -> dict[str, Report]:
        """What each task has done, if this process is the leader."""
        ...


class Read:
    """Step: call a function with the engine; its result is the answer. It must not write: only calls share commits."""

    __slots__ = ("query",)

    def __init__(self, query: Callable[[Engine], Any]) -> None:
        self.query = query


class WaitForMessages:
    """Step: after a claim found nothing, wait until messages may be ready, for at most ``seconds``.

    The answer is None: claim again. Or it is the reply to ``claim``, if the commit that stored a message also carried
    out that claim (see `WaitingClaim`).
    """

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
        """The queues that the last claim found empty. In others, paused or at a limit, messages may be ready."""
        self.full = full
        """Queues that were empty, or had reached this number of leased messages."""
        self.claim = claim
        """Builds the claim that a commit may carry out for the waiting task."""
        self.mark = mark
        """The value of `Waiters.mark` before the last claim; None if not known."""


class WaitForEnd:
    """Step: wait until a message has ended, for at most ``seconds``. The answer is None; read the message after it."""

    __slots__ = ("id", "seconds", "tenant")

    def __init__(self, tenant: str, id: str, seconds: float) -> None:
        self.tenant = tenant
        self.id = id
        self.seconds = seconds


class PublishSet:
    """Step: publish to several queues, all or nothing. Publish steps that route or copy messages make it.

    The answer is list[Message]: one for each message that was passed to `publish`, in that order, without copies.
    """

    __slots__ = ("_order", "copies", "rows")

    def __init__(self, rows: list[Publish], copies: list[Publish], order: list[tuple[int, int]]) -> None:
        self.rows = rows
        """Calls that store the messages passed to `publish`, one for each queue."""
        self.copies = copies
        """Calls that store copies which publish steps have added."""
        self._order = order
        """For each message passed to `publish`: (index in ``rows``, index in that call)."""

    @property
    def calls(self) -> list[Publish]:
        return self.rows + self.copies

    def looked_up(self) -> PublishSet:
        """The same with calls for units that have a name: these cannot be ``simple``, and no ``copy``."""
        rows, copies = (
            [structs.replace(call, simple=False, copy=False) for call in part] for part in (self.rows, self.copies)
        )
        return PublishSet(rows, copies, self._order)

    @property
    def call(self) -> Publish | Together:
        """All calls as one."""
        calls = self.calls
        return calls[0] if len(calls) == 1 else Together(calls[0].tenant, calls)

    def replies(self, reply: Any) -> list[Any]:
        """The replies to `calls`, from the reply to `call`."""
        return [reply] if len(self.calls) == 1 else reply

    def messages(self, replies: Sequence[Sequence[Message]]) -> list[Message]:
        """The answer of the step, from the replies to `calls`."""
        return [replies[call][at] for call, at in self._order]


Step = Call | Read | WaitForMessages | WaitForEnd | PublishSet
Steps = Generator[Step, Any, R]
"""A verb: yields steps, is sent their answers (or has their errors raised in it), and returns an R."""


def without_errors(replies: list[Any]) -> list[Any]:
    """The replies of an engine. Raises the first error among them."""
    for reply in replies:
        if isinstance(reply, TampuError):
            raise reply
    return replies


class StepRunner:
    """Carries out verbs step by step. `Core` does so with an engine, `client.remote.RemoteCore` over HTTP."""

    closed = False

    def __init__(self) -> None:
        self.in_transaction: set[int] = set()
        """Idents of threads that are inside ``store.transaction()``."""

    def do(self, step: Any) -> Any:
        """Carry out one step from a thread; returns its answer."""
        raise NotImplementedError

    async def do_async(self, step: Any) -> Any:
        """Carry out one step from a task; returns its answer."""
        raise NotImplementedError

    async def leave_loop(self) -> None:
        """Close what belongs to the running event loop, such as connections."""

    def stream(self, _store: Any, _request: Any) -> Any:
        """A stream on which the store pushes leases; None if the store cannot push and the caller must claim."""
        return None

    def drive(self, steps: Generator[Any, Any, R], do: Callable[[Any], Any] | None = None) -> R:
        """Carry out a verb from a thread; returns its result. ``do`` replaces `self.do`."""
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
        """Carry out a verb from a task; returns its result. ``do`` replaces `self.do_async`."""
        do = do or self.do_async
        resume: Callable[[Any], Any] = steps.send
        value: Any = None
        while True:
            try:
                step = resume(value)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]  # the generator's own return type
            try:
                resume, value = steps.send, await do(step)
            except TampuError as error:
                resume, value = steps.throw, error


class Core(StepRunner):
    """An open store in this process. It is also the engine's `Listener`: it wakes waiters after each commit."""

    def __init__(self, engine: Engine) -> None:
        super().__init__()
        self.engine = engine
        self.settings = SettingsCache(engine)
        self.waiting = Waiters()
        self._reports_changes = "hand_over" in engine.capabilities
        """The engine reports every change at once, also those of other processes."""
        self.commit_queues = CommitQueues(engine, self.waiting if self._reports_changes else None)
        self.coalescer = self.commit_queues.main
        self.completion = Completion(engine)
        self.on_due: Callable[[int], None] = lambda _at: None
        self.on_change: Callable[[], None] = lambda: None
        self.on_ready: dict[str, Callable[[str], None]] = {}
        """By queue: called with the tenant after a commit that made messages of it ready."""
        self.on_leases_expired: Callable[[Mapping[tuple[str, str], tuple[int, int]]], None] = lambda _queues: None
        self.maintenance: Maintenance | None = None
        self.watched = False
        """Maintenance polls for all waiters, so they need not poll themselves."""
        self.attempts: dict[tuple[str, str], tuple[int, int]] = {}
        """How many attempts succeeded and failed, by (tenant, queue), since this process leads; for alerts that need
        it, see `tampu.broker.policies.alerts.follower`."""
        self.private_webhooks = False
        """Webhooks may go to private, loopback and link-local addresses."""
        self.warned_of_priority: set[tuple[str, str]] = set()
        """Queues, as (tenant, name), for which it was logged that a priority has no effect."""
        engine.listen(self)

    # -- Listener

    def ready(self, queues: Mapping[tuple[str, str], int]) -> None:
        for tenant, queue in queues:
            if queue in self.on_ready:
                self.on_ready[queue](tenant)
        if self.waiting.in_use:
            self.waiting.became_ready(queues)

    def due(self, at_us: int) -> None:
        self.on_due(at_us)

    def leases_expired(self, queues: Mapping[tuple[str, str], tuple[int, int]]) -> None:
        self.on_leases_expired(queues)

    def on_remote_change(self) -> bool:
        self.waiting.note_all()
        try:
            self.wake_waiters()
        except TampuError as error:  # the wake-up thread must go on
            log.warning("could not check for new messages, will try again: %s", error)
        self.on_change()
        return self.waiting.anybody

    def wake_waiters(self) -> None:
        """Wake waiters whose queues have messages, also messages that other processes published."""
        if self.waiting.anybody:
            self._while_open(self.poll_status)

    def poll_status(self) -> PollStatus:
        """Do what `wake_waiters` does, and return what maintenance tasks need to know, in the same round trip."""
        status = self.engine.poll_status(self.waiting.queues)
        self.waiting.wake(status.ready)
        return status

    def arrived_since_claim(self, pause: WaitForMessages) -> bool:
        """Check again after registering the waiter: a message may have arrived since the last claim."""
        return not self._unchanged(pause) and bool(self._while_open(lambda: self._ready(pause)))

    def _unchanged(self, pause: WaitForMessages) -> bool:
        """True if the engine has surely reported nothing since the claim: then there is nothing to look for."""
        return self._reports_changes and pause.mark is not None and pause.mark == self.waiting.mark(pause.queues)

    def _ready(self, pause: WaitForMessages) -> bool:
        if pause.empty and any(self.engine.poll_status(pause.empty).ready.values()):
            return True
        return any(
            stats.counts.get(State.READY, 0) and stats.counts.get(State.LEASED, 0) < most
            for queue, most in pause.full
            for stats in self.engine.stats(*queue)
        )

    def _while_open(self, query: Callable[[], R]) -> R | None:
        """The result of a query; None if the store is closed before or during it."""
        if self.closed:
            return None
        try:
            return query()
        except Unavailable:
            if self.closed:
                return None
            raise

    # -- carrying out steps

    def do(self, step: Step) -> Any:
        if type(step) is Publish:  # first: the most frequent step
            return self.coalescer.submit(step)
        if isinstance(step, Read):
            return step.query(self.engine)
        if isinstance(step, PublishSet):
            return step.messages(step.replies(self.coalescer.submit(step.call)))
        if isinstance(step, WaitForMessages | WaitForEnd):
            self._wait(step)
            return None
        if not isinstance(step, Settle | Together):
            return self.coalescer.submit(step)
        reply = self.commit_queues.for_call(step).submit(step)
        if self.completion.anybody:
            self.completion.read_now()
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
        self.completion.expect(step.tenant, step.id, ended.set)
        try:
            if not self._has_ended(step):
                ended.wait(step.seconds)
        finally:
            self.completion.forget(step.tenant, step.id, ended.set)

    def _has_ended(self, step: WaitForEnd) -> bool:
        """Check again after registering: the message may have ended since the verb read it."""
        found = self.engine.get(step.tenant, step.id)
        return found is None or has_ended(found.state)

    async def do_async(self, step: Step) -> Any:
        if type(step) is Publish:
            return await self.coalescer.submit_async(step)
        if isinstance(step, Read):
            return await asyncio.to_thread(step.query, self.engine)
        if isinstance(step, WaitForMessages):
            return await self.pause_async(step, WaitingClaim(step.queues, asyncio.get_running_loop(), step.claim))
        if isinstance(step, WaitForEnd):
            await self._wait_for_end_async(step)
            return None
        if isinstance(step, PublishSet):
            return step.messages(step.replies(await self.coalescer.submit_async(step.call)))
        reply = await self.coalescer.submit_async(step)
        if self.completion.anybody and isinstance(step, Settle | Together):
            self.completion.read_now()
        return reply

    async def _wait_for_end_async(self, step: WaitForEnd) -> None:
        loop, ended = asyncio.get_running_loop(), asyncio.Event()

        def notify() -> None:
            with contextlib.suppress(RuntimeError):  # its loop was closed
                loop.call_soon_threadsafe(ended.set)

        await asyncio.to_thread(self.completion.expect, step.tenant, step.id, notify)
        try:
            if not await asyncio.to_thread(self._has_ended, step):
                async with asyncio.timeout(step.seconds):
                    await ended.wait()
        except TimeoutError:
            return
        finally:
            self.completion.forget(step.tenant, step.id, notify)

    async def pause_async(self, step: WaitForMessages, waiter: WaitingClaim) -> Any:
        """Carry out the step with a waiter of the caller's, which the caller can wake to end it sooner."""
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
