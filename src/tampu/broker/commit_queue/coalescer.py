"""The one place where concurrency lives.

Whoever calls while a commit is under way joins the next one: no timers, no queue thread. The first caller leads and
runs the batch itself; when it is done, it hands the lead to one of those who waited meanwhile. Tasks of an event loop
are gathered until the loop's turn is over, and one helper thread leads for them, so the loop never blocks on a disk.
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


class Runs(Protocol):
    def run(self, calls: Sequence[Call]) -> list[Any | TampuError]: ...


class Answered(Protocol):
    """As much of a future as is needed: told in its own loop, once."""

    def get_loop(self) -> asyncio.AbstractEventLoop: ...

    def done(self) -> bool: ...

    def set_result(self, reply: Any, /) -> None: ...


class Ticket:
    """One call on its way, and whom to tell."""

    __slots__ = ("abandoned", "call", "future", "gate", "lead", "reply")

    def __init__(self, call: Call, gate: Any = None, future: Answered | None = None) -> None:
        self.call = call
        self.gate = gate
        self.future = future
        self.lead = False
        self.abandoned = False
        self.reply: Any = None


class Takes(Protocol):
    """Who may add calls to a commit that is about to begin."""

    def attach_waiting_claims(self, batch: list[Ticket]) -> None: ...

    def done(self) -> None:
        """It is over."""
        ...


in_commit: dict[int, Ticket] = {}
"""The tickets of threads that are in a commit now, or wait for one, by their idents."""


def inside_store(thread: int) -> bool:
    """Is this thread (by its ident) in a commit now? It may be leading one of others: who has a choice does not
    interrupt it then."""
    ticket = in_commit.get(thread)
    return ticket is not None and (ticket.lead or (ticket.reply is None and not ticket.abandoned))


MOST = 10_000
"""Calls in one commit, so that a flood does not make one commit endless."""


class Coalescer:
    def __init__(self, engine: Runs, takes: Takes | None = None) -> None:
        self._engine = engine
        self._takes = takes
        self._mutex = threading.Lock()
        self._pending: list[Ticket] = []
        self._busy = False
        self._kicked = False
        self._helper: ThreadPoolExecutor | None = None
        self.on_commit: list[Callable[[int, float], None]] = []
        """Told after each commit how many calls shared it and how long it took, by the thread that led it."""

    @property
    def busy(self) -> bool:
        """Is a commit under way?"""
        return self._busy

    def submit(self, call: Call) -> Any:
        """Carry out a call from a thread; its reply, or its error raised."""
        ticket, thread = Ticket(call), threading.get_ident()
        try:  # an interrupt may come at any line
            in_commit[thread] = ticket
            self._go_through(ticket)
            reply = ticket.reply
        except BaseException:
            self.abandon(ticket)
            raise
        finally:
            in_commit.pop(thread, None)
        if isinstance(reply, BaseException):
            raise reply
        return reply

    def _go_through(self, ticket: Ticket) -> None:
        """Wait for the reply, or lead the commit that brings it."""
        with self._mutex:
            if self._busy:
                ticket.gate = threading.Lock()
                ticket.gate.acquire()
                self._pending.append(ticket)
            else:
                ticket.lead = True
                # In front, so that a leader always runs its own call, however many tasks wait.
                self._pending.insert(0, ticket)
                self._busy = True
        if ticket.gate is not None:
            ticket.gate.acquire()
        if ticket.lead:
            self._lead(ticket)

    async def submit_async(self, call: Call) -> Any:
        """Carry out a call from a task."""
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

    def submit_for(self, call: Call, future: Answered) -> Ticket:
        """Carry out a call for somebody in a loop, who is told there; its error too is told, not raised."""
        ticket = Ticket(call, future=future)
        with self._mutex:
            self._pending.append(ticket)
            kick = not self._busy and not self._kicked
            self._kicked = self._kicked or kick
        if kick:
            future.get_loop().call_soon(self._kick)
        return ticket

    def abandon(self, ticket: Ticket) -> None:
        """The caller was interrupted: its call is dropped if nobody took it up; a lead that it has is carried on."""
        with self._mutex:
            ticket.abandoned = True
            given = ticket.lead
            late = self._give_back(ticket)
        if given:
            self._lead(ticket)
        elif late:
            self._kick()

    def _give_back(self, ticket: Ticket) -> bool:
        """Release what was claimed for a caller that is gone: it would wait for the lease's end, one attempt used.

        Called with the mutex held.
        """
        call, reply = ticket.call, ticket.reply
        if not isinstance(call, Claim) or not isinstance(reply, list) or not reply:
            return False
        ticket.reply = None  # once is enough
        releases = [SettleItem("release", lease.queue, lease.receipt) for lease in reply]
        self._pending.append(Ticket(Settle(call.tenant, releases)))
        return True

    def _give_all_back(self, batch: list[Ticket]) -> None:
        for ticket in batch:
            if ticket.abandoned:
                self._give_back(ticket)

    def _kick(self) -> None:
        with self._mutex:
            self._kicked = False
            if self._busy or not self._pending:
                return
            self._busy = True
        if not self._start_helper():
            self._lead()

    def _start_helper(self) -> bool:
        """Let the helper lead; false when no thread can be had for it: then who has the lead keeps it."""
        with self._mutex:
            if self._helper is None:
                self._helper = ThreadPoolExecutor(1, thread_name_prefix="tampu-commits")
            try:
                self._helper.submit(self._lead)
            except RuntimeError:
                self._helper = None  # it would lead as soon as it has a thread, beside us
                return False
            return True

    def _lead(self, leader: Ticket | None = None) -> None:
        """Run what is pending, then pass the lead on; the helper keeps it while only tasks wait.

        ``leader`` is the ticket of who leads: it has the lead until somebody else has it, or nobody.
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
                    self._give_all_back(batch)
                    next_leader = self._next_leader()
                    passed = next_leader is None or next_leader.gate is not None
                    if passed and leader is not None:
                        leader.lead = False
                if next_leader is not None and next_leader.gate is not None:
                    next_leader.gate.release()
                self._deliver(batch)
                if passed:
                    return
                if not threading.current_thread().name.startswith("tampu-commits") and self._start_helper():
                    passed = True
                    if leader is not None:
                        leader.lead = False
                    return
        except BaseException as error:
            self._stopped(batch, next_leader, error, leader, passed=passed)
            raise

    def _stopped(
        self,
        batch: list[Ticket],
        next_leader: Ticket | None,
        error: BaseException,
        leader: Ticket | None,
        *,
        passed: bool,
    ) -> None:
        """Somebody stopped the leading thread: the others must not wait for ever, and the next one leads."""
        stopped = Unavailable(
            f"the commit was interrupted, it may or may not have happened: {error!r}",
            hint="look before you call again; settling again, or publishing with an idempotency_key, is safe",
        )
        with self._mutex:
            self._give_all_back(batch)
            for ticket in batch:
                if ticket.reply is None:
                    ticket.reply = stopped
            if leader is not None:
                leader.abandoned = True  # nobody carries it out behind its back
            if not passed:
                next_leader = self._next_leader()
            if leader is not None:
                leader.lead = False
        self._deliver(batch)
        if next_leader is not None and next_leader.gate is not None:
            _release(next_leader.gate)
        elif next_leader is not None and not self._start_helper():
            self._lead()

    def _next_leader(self) -> Ticket | None:
        """Who leads next; those who walked away are left out. Called with the mutex held."""
        while self._pending and self._pending[0].abandoned:
            del self._pending[0]
        if not self._pending:
            self._busy = False
            return None
        next_leader = self._pending[0]
        next_leader.lead = next_leader.gate is not None
        return next_leader

    def _run(self, batch: list[Ticket]) -> None:
        """Carry out the calls; each ticket has its reply, or the error of all, as soon as there is one."""
        if not batch:
            return
        began = time.perf_counter()
        try:
            if self._takes is not None:
                self._takes.attach_waiting_claims(batch)
            for ticket, reply in zip(batch, self._engine.run([ticket.call for ticket in batch]), strict=True):
                ticket.reply = reply
        except Exception as error:
            for ticket in batch:
                ticket.reply = error
        finally:
            if self._takes is not None:
                self._takes.done()
            if self.on_commit:
                seconds = time.perf_counter() - began
                for tell in self.on_commit:
                    tell(len(batch), seconds)

    @staticmethod
    def _deliver(batch: list[Ticket]) -> None:
        """Let those of the batch go on; doing it again, after an interrupt, does no harm."""
        loops: dict[asyncio.AbstractEventLoop, list[tuple[Answered, Any]]] = {}
        for ticket in batch:
            if ticket.future is not None:
                loops.setdefault(ticket.future.get_loop(), []).append((ticket.future, ticket.reply))
            elif ticket.gate is not None and not ticket.lead:
                _release(ticket.gate)
        for loop, answers in loops.items():
            with contextlib.suppress(RuntimeError):  # the loop was closed
                loop.call_soon_threadsafe(_answer, answers)

    def close(self) -> None:
        with self._mutex:
            # A task that calls after this gets a new helper, and through it the engine's answer that it is closed.
            helper, self._helper = self._helper, None
        if helper is not None:
            helper.shutdown(wait=True)


def _release(gate: Any) -> None:
    with contextlib.suppress(RuntimeError):  # it was released before
        gate.release()


def _answer(answers: list[tuple[Answered, Any]]) -> None:
    for future, reply in answers:
        if not future.done():
            future.set_result(reply)
