"""Group commit: calls that arrive during a commit share the next one. All concurrency of a store is handled here.

There are no timers and no queue thread. The first caller leads: it runs the batch itself, then passes the lead to a
caller that has waited meanwhile. Calls of tasks are collected until the turn of their event loop ends, and a helper
thread leads for them, so that a loop never blocks on a disk.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

from tampu.engines.port import Call, Claim, Settle, SettleItem
from tampu.model.errors import TampuError, Unavailable


class RunsCalls(Protocol):
    """The part of an engine that the coalescer needs."""

    def run(self, calls: Sequence[Call]) -> list[Any | TampuError]: ...


class Future(Protocol):
    """The part of `asyncio.Future` that the coalescer needs. The result is set once, in the future's own loop."""

    def get_loop(self) -> asyncio.AbstractEventLoop: ...

    def done(self) -> bool: ...

    def set_result(self, reply: Any, /) -> None: ...


class Ticket:
    """One call, and where its reply goes: to a thread that waits at ``lock``, or to a future."""

    __slots__ = ("abandoned", "call", "future", "lead", "lock", "reply")

    def __init__(self, call: Call, lock: Any = None, future: Future | None = None) -> None:
        self.call = call
        self.lock = lock
        self.future = future
        self.lead = False
        self.abandoned = False
        self.reply: Any = None


class AttachesClaims(Protocol):
    """Adds claims to a commit that is about to begin."""

    in_use: bool

    def attach_claims(self, batch: list[Ticket]) -> None: ...

    def commit_ended(self) -> None: ...


in_commit: dict[int, Ticket] = {}
"""Thread ident → ticket, for threads that run a commit or wait for one."""


def inside_store(thread: int) -> bool:
    """True if the thread with this ident is in a commit. It may be running calls of others: better not interrupt it."""
    ticket = in_commit.get(thread)
    return ticket is not None and (ticket.lead or (ticket.reply is None and not ticket.abandoned))


MOST = 10_000
"""Most calls in one commit, so that a flood of calls does not make it endless."""


class Coalescer:
    """Collects calls of threads and tasks into batches; `engine.run` gets one batch at a time."""

    def __init__(self, engine: RunsCalls, waiters: AttachesClaims | None = None) -> None:
        self._engine = engine
        self._waiters = waiters
        self._mutex = threading.Lock()
        self._pending: list[Ticket] = []
        self._busy = False
        self._kicked = False
        self._helper: ThreadPoolExecutor | None = None
        self.on_commit: list[Callable[[int, float], None]] = []
        """Called after each commit, by the thread that led it, with the number of its calls and how long it took."""

    @property
    def busy(self) -> bool:
        """True if a commit is under way."""
        return self._busy

    def submit(self, call: Call) -> Any:
        """Carry out a call from a thread. Returns its reply or raises its error."""
        ticket, thread = Ticket(call), threading.get_ident()
        try:  # an interrupt may come at any line
            in_commit[thread] = ticket
            self._wait_or_lead(ticket)
            reply = ticket.reply
        except BaseException:
            self.abandon(ticket)
            raise
        finally:
            in_commit.pop(thread, None)
        if isinstance(reply, BaseException):
            raise reply
        return reply

    def _wait_or_lead(self, ticket: Ticket) -> None:
        """Wait for the reply, or lead the commit that includes the call."""
        with self._mutex:
            if self._busy:
                ticket.lock = threading.Lock()
                ticket.lock.acquire()
                self._pending.append(ticket)
            else:
                ticket.lead = True
                # In front: a leader always runs its own call, however many tasks wait.
                self._pending.insert(0, ticket)
                self._busy = True
        if ticket.lock is not None:
            ticket.lock.acquire()
        if ticket.lead:
            self._lead(ticket)

    async def submit_async(self, call: Call) -> Any:
        """Carry out a call from a task. Returns its reply or raises its error."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        ticket = self.submit_for(call, future)
        try:
            reply = await future
        except asyncio.CancelledError:
            self.abandon(ticket)
            raise
        if isinstance(reply, BaseException):
            raise reply
        return reply

    def submit_for(self, call: Call, future: Future) -> Ticket:
        """Carry out a call and set its reply, or its error, as the result of the future."""
        ticket = Ticket(call, future=future)
        with self._mutex:
            self._pending.append(ticket)
            kick = not self._busy and not self._kicked
            self._kicked = self._kicked or kick
        if kick:
            future.get_loop().call_soon(self._kick)
        return ticket

    def abandon(self, ticket: Ticket) -> None:
        """The caller was interrupted: drop its call if no commit has begun it; if it leads, lead on for the others."""
        with self._mutex:
            ticket.abandoned = True
            leads = ticket.lead
            released = self._release_claimed(ticket)
        if leads:
            self._lead(ticket)
        elif released:
            self._kick()

    def _release_claimed(self, ticket: Ticket) -> bool:
        """Release what was claimed for a caller that is gone. Else it would stay leased, and use up an attempt.

        Called with the mutex held.
        """
        call, reply = ticket.call, ticket.reply
        if not isinstance(call, Claim) or not isinstance(reply, list) or not reply:
            return False
        ticket.reply = None  # release only once
        releases = [SettleItem("release", lease.queue, lease.receipt) for lease in reply]
        self._pending.append(Ticket(Settle(call.tenant, releases)))
        return True

    def _release_abandoned(self, batch: list[Ticket]) -> None:
        for ticket in batch:
            if ticket.abandoned:
                self._release_claimed(ticket)

    def _kick(self) -> None:
        with self._mutex:
            self._kicked = False
            if self._busy or not self._pending:
                return
            self._busy = True
        if not self._start_helper():
            self._lead()

    def _start_helper(self) -> bool:
        """Let the helper thread lead. False if no thread can be started: then the caller keeps the lead."""
        with self._mutex:
            if self._helper is None:
                self._helper = ThreadPoolExecutor(1, thread_name_prefix="tampu-commits")
            try:
                self._helper.submit(self._lead)
            except RuntimeError:
                self._helper = None  # else it would lead, besides us, as soon as it gets a thread
                return False
            return True

    def _lead(self, leader: Ticket | None = None) -> None:
        """Run what is pending, then pass the lead on; the helper thread keeps it while only tasks wait.

        ``leader`` is the ticket of the leading thread. It has the lead until another ticket, or nobody, has it.
        """
        batch: list[Ticket] = []
        next_leader: Ticket | None = None
        passed = False
        try:
            while True:
                with self._mutex:
                    batch = [ticket for ticket in self._pending[:MOST] if not ticket.abandoned]
                    del self._pending[:MOST]
                self._run(batch)
                with self._mutex:
                    self._release_abandoned(batch)
                    next_leader = self._next_leader()
                    passed = next_leader is None or next_leader.lock is not None
                    if passed and leader is not None:
                        leader.lead = False
                if next_leader is not None and next_leader.lock is not None:
                    next_leader.lock.release()
                self._deliver(batch)
                if passed:
                    return
                if not threading.current_thread().name.startswith("tampu-commits") and self._start_helper():
                    passed = True
                    if leader is not None:
                        leader.lead = False
                    return
        except BaseException as error:
            self._interrupted(batch, next_leader, error, leader, passed=passed)
            raise

    def _interrupted(
        self,
        batch: list[Ticket],
        next_leader: Ticket | None,
        error: BaseException,
        leader: Ticket | None,
        *,
        passed: bool,
    ) -> None:
        """The leading thread was interrupted: answer the others, which would wait for ever, and pass the lead on."""
        stopped = Unavailable(
            f"the commit was interrupted, and may or may not have happened: {error!r}",
            hint="check before you call again; settling again, or publishing with an idempotency_key, is safe",
        )
        with self._mutex:
            self._release_abandoned(batch)
            for ticket in batch:
                if ticket.reply is None:
                    ticket.reply = stopped
            if leader is not None:
                leader.abandoned = True  # its call must not run after it was interrupted
            if not passed:
                next_leader = self._next_leader()
            if leader is not None:
                leader.lead = False
        self._deliver(batch)
        if next_leader is not None and next_leader.lock is not None:
            _release(next_leader.lock)
        elif next_leader is not None and not self._start_helper():
            self._lead()

    def _next_leader(self) -> Ticket | None:
        """The ticket that leads next; abandoned ones are dropped. Called with the mutex held."""
        while self._pending and self._pending[0].abandoned:
            del self._pending[0]
        if not self._pending:
            self._busy = False
            return None
        next_leader = self._pending[0]
        next_leader.lead = next_leader.lock is not None
        return next_leader

    def _run(self, batch: list[Ticket]) -> None:
        """Run the calls of a batch; each ticket gets its reply, or the error of the whole batch."""
        if not batch:
            return
        began = time.perf_counter()
        try:
            if self._waiters is not None and self._waiters.in_use:
                self._waiters.attach_claims(batch)
            for ticket, reply in zip(batch, self._engine.run([ticket.call for ticket in batch]), strict=True):
                ticket.reply = reply
        except Exception as error:
            for ticket in batch:
                ticket.reply = error
        finally:
            if self._waiters is not None and self._waiters.in_use:
                self._waiters.commit_ended()
            if self.on_commit:
                seconds = time.perf_counter() - began
                for notify in self.on_commit:
                    notify(len(batch), seconds)

    @staticmethod
    def _deliver(batch: list[Ticket]) -> None:
        """Let the callers of the batch go on. Doing it twice, after an interrupt, does no harm."""
        loops: dict[asyncio.AbstractEventLoop, list[tuple[Future, Any]]] = {}
        for ticket in batch:
            if ticket.future is not None:
                loops.setdefault(ticket.future.get_loop(), []).append((ticket.future, ticket.reply))
            elif ticket.lock is not None and not ticket.lead:
                _release(ticket.lock)
        for loop, answers in loops.items():
            with contextlib.suppress(RuntimeError):  # the loop was closed
                loop.call_soon_threadsafe(_answer, answers)

    def close(self) -> None:
        with self._mutex:
            # A call of a task after this starts a new helper, and gets the engine's error that it is closed.
            helper, self._helper = self._helper, None
        if helper is not None:
            helper.shutdown(wait=True)


def _release(lock: Any) -> None:
    with contextlib.suppress(RuntimeError):  # released before
        lock.release()


def _answer(answers: list[tuple[Future, Any]]) -> None:
    for future, reply in answers:
        if not future.done():
            future.set_result(reply)
