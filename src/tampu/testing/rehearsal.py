"""`Rehearsal`: an app with a store in memory, whose tasks run one by one when the test calls `drain`."""

from __future__ import annotations

import asyncio
from typing import Any, Self

import msgspec

from tampu import store_factory
from tampu.broker import access
from tampu.broker.store import Store
from tampu.maintenance.scheduler import Scheduler
from tampu.maintenance.tasks import Sweeper
from tampu.model.errors import InvalidMessage, InvalidState, NotFound
from tampu.model.message import Message, State
from tampu.model.outcome import Ack, Nack, Reject
from tampu.model.times import Duration
from tampu.testing.clock import FakeClock
from tampu.testing.faults import Fault, FaultInjector, Observer, count, seconds
from tampu.worker import endings
from tampu.worker.app import App
from tampu.worker.current import Current
from tampu.worker.exceptions import TaskFailed
from tampu.worker.pools import call_task
from tampu.worker.task_store import LocalTaskStore
from tampu.worker.tasks import Task

_ENDLESS = 10_000
_LEASE_SECONDS = 30.0
_NOT_A_FIELD = frozenset(("delay", "run_at", "ttl", "id"))


class Ran(msgspec.Struct, frozen=True):
    """One attempt that `Rehearsal.drain` made."""

    task: str
    id: str
    attempt: int
    state: State | None
    """State of the message afterwards; None if the lease had expired and the outcome was refused."""
    result: Any = None
    error: BaseException | None = None
    """What the task or a middleware raised; `TaskFailed` if the message failed without an exception."""


class Rehearsal:
    """For a ``with`` block, the app has a store in memory and a clock that only the test moves.

    Publish as usual, then call `drain`: this thread runs everything that is ready, in the order of its queue.
    """

    def __init__(self, app: App, clock: FakeClock | None = None) -> None:
        self.app = app
        self.clock = clock or FakeClock()
        self._before: Any = None

    def __enter__(self) -> Self:
        app = self.app
        self.store: Store = store_factory.open("memory://", tenant=app.tenant, maintenance=False, clock=self.clock)
        self._task_store = LocalTaskStore(self.store, _LEASE_SECONDS)
        self._scheduler = Scheduler(access.core(self.store))
        self._faults = FaultInjector(self.store, self.clock)
        self._before = app.use(self.store)
        app.running.append(self._faults)
        self._observer = Observer()
        app.running.insert(0, self._observer)
        return self

    def __exit__(self, *_: object) -> None:
        self.app.running.remove(self._faults)
        self.app.running.remove(self._observer)
        self.app.use(self._before)
        self.store.close()

    # -- running

    def drain(self, *queues: str, raise_errors: bool = False) -> list[Ran]:
        """Run ready messages of these queues (default: all) until none is left, with those that they publish.

        Delayed messages wait: move the clock. Due schedules fire first. With ``raise_errors`` the first error of a task
        or a middleware is raised here; if a message failed without one (its arguments do not fit), `TaskFailed`.
        """
        done: list[Ran] = []
        while len(done) < _ENDLESS:
            self._maintain()
            leases = self._claim(queues)
            if not leases:
                return done
            for lease in leases:
                ran = self._run(lease)
                done.append(ran)
                if raise_errors and ran.error is not None:
                    raise ran.error
        raise AssertionError(f"more messages are ready after {_ENDLESS} attempts: does a task publish itself?")

    async def drain_async(self, *queues: str, raise_errors: bool = False) -> list[Ran]:
        """`drain` for tests that run in an event loop."""
        return await asyncio.to_thread(self.drain, *queues, raise_errors=raise_errors)

    def advance(self, by: Duration) -> None:
        """Move the clock forward, and apply the effects: delays end, leases expire, schedules fire."""
        self.clock.advance(by)
        self._maintain()

    def _maintain(self) -> None:
        Sweeper(access.core(self.store)).sweep()
        self._scheduler.forget()
        self._scheduler.fire()

    def _claim(self, queues: tuple[str, ...]) -> list[Any]:
        names = list(queues) or self.store.queues.list()
        return self.store.claim(names, lease=_LEASE_SECONDS, worker="rehearsal") if names else []

    def _run(self, lease: Any) -> Ran:
        task = self.app.tasks.get(lease.message.type)
        if task is None:
            self.store.release(lease)
            raise NotFound(f"this app has no task named {lease.message.type}", field="type")
        if task.is_async and _in_a_loop():
            self.store.release(lease)
            raise InvalidState(f"{task.name} is async, and an event loop runs here", hint="await drain_async()")
        settlement = call_task.run(Current(lease, task, self._task_store))
        error = self._observer.raised.pop(lease.receipt, None)
        state = None if settlement is None else self._settle(settlement)
        result = None
        if state is State.DONE:
            result = task.arguments.read_result(self.store.get(lease.id).result_raw)
        elif error is None and isinstance(settlement, Ack | Nack | Reject) and state is not None:
            error = TaskFailed(self.store.get(lease.id))
        return Ran(task.name, lease.id, lease.attempt, state, result, error)

    def _settle(self, settlement: Any) -> State | None:
        try:
            return self.store.settle([settlement])[0].state
        except InvalidMessage as error:  # like a worker
            return self.store.settle([endings.bad_result(settlement.lease, error)])[0].state

    # -- faults on demand

    def fail(self, task: Task[Any, Any], error: BaseException | None = None, *, times: int = 1) -> None:
        """Make the next ``times`` runs of the task raise this instead of calling the function."""
        self._faults.add(task.name, Fault(count(times), error=error or RuntimeError("failed on demand")))

    def slow(self, task: Task[Any, Any], by: Duration, *, times: int = 1) -> None:
        """Make the next runs take this long. The lease is extended; a shorter ``timeout`` ends the task."""
        self._faults.add(task.name, Fault(count(times), slow=seconds(by, "by")))

    def stall(self, task: Task[Any, Any], by: Duration, *, times: int = 1) -> None:
        """Make the worker of the next runs stall for this long. If the lease expires, its outcome is refused and the
        message is delivered again."""
        self._faults.add(task.name, Fault(count(times), stall=seconds(by, "by")))

    # -- assertions

    def published(self, what: Task[Any, Any] | str | None = None, /, *args: Any, **kwargs: Any) -> list[Message]:
        """Published messages, oldest first; of a task or type, and with these arguments, if given.

        ``send.options(priority=9)`` finds only messages with that priority. For a type, ``payload=`` is compared.
        """
        transitions = self.store.journal(limit=100_000).transitions
        found = [self.store.get(t.id) for t in transitions if t.verb == "publish"]
        return [m for m in found if what is None or self._is(m, what, args, kwargs)]

    def _is(self, message: Message, what: Task[Any, Any] | str, args: Any, kwargs: dict[str, Any]) -> bool:
        if isinstance(what, str):
            return message.type == what and all(getattr(message, name) == value for name, value in kwargs.items())
        if message.type != what.name or message.queue != what.settings.queue:
            return False
        for name, value in what._fields.items():
            if name not in _NOT_A_FIELD and getattr(message, name) != value:
                return False
        if not args and not kwargs:
            return True
        for one in self.app.receiving:
            message = one.receive(message)
        sent = what.arguments.unpack(*what.arguments.pack(args, kwargs))
        return what.arguments.unpack(message.raw, message.content_type) == sent

    def assert_published(self, what: Task[Any, Any] | str, /, *args: Any, **kwargs: Any) -> list[Message]:
        """Fail unless it was published. Returns the messages that `published` finds."""
        found = self.published(what, *args, **kwargs)
        if not found:
            raise AssertionError(f"{_describe(what, args, kwargs)} was not published; published: {self._all()}")
        return found

    def assert_not_published(self, what: Task[Any, Any] | str, /, *args: Any, **kwargs: Any) -> None:
        """Fail if it was published."""
        found = self.published(what, *args, **kwargs)
        if found:
            raise AssertionError(f"{_describe(what, args, kwargs)} was published {len(found)} times")

    def _all(self) -> str:
        return ", ".join(f"{m.type} {m.raw[:80].decode('utf-8', 'replace')}" for m in self.published()) or "nothing"


def _describe(what: Task[Any, Any] | str, args: Any, kwargs: dict[str, Any]) -> str:
    name = what if isinstance(what, str) else what.name
    words = [*(repr(a) for a in args), *(f"{k}={v!r}" for k, v in kwargs.items())]
    return f"{name}({', '.join(words)})" if words else name


def _in_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
