"""The runner: claims messages of an app's tasks, has them carried out, and settles them.

An intake thread claims, the event loop and threads work, a tray thread settles, and a warden keeps the leases. The loop
is never used for the store, so that an outage does not stop tasks that run.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from tampu.broker import access
from tampu.broker.store import Store
from tampu.model.errors import InvalidConfig
from tampu.model.message import Lease
from tampu.model.outcome import Ack, Nack, Reject, Release, Settlement
from tampu.model.reasons import UNKNOWN_TASK
from tampu.worker import endings
from tampu.worker.app import App
from tampu.worker.claimer import Claimer
from tampu.worker.current import STOPPING, TIMED_OUT, Current
from tampu.worker.leases.lease_keeper import LeaseKeeper, LeaseKeeperProcess, LeaseKeeperThread
from tampu.worker.outages import Outages
from tampu.worker.pools import call_task, event_loop
from tampu.worker.pools.async_pool import AsyncPool
from tampu.worker.pools.interrupt import heed
from tampu.worker.pools.process_pool import ProcessPool
from tampu.worker.pools.stopper import Stopper
from tampu.worker.pools.thread_pool import ThreadPool
from tampu.worker.prefetch import Prefetch
from tampu.worker.queue_order import QueueOrder
from tampu.worker.repeat import Repeat
from tampu.worker.settle_queue import Ended, SettleQueue
from tampu.worker.task_store import LocalTaskStore
from tampu.worker.tasks import Task

log = logging.getLogger("tampu.worker")
Lane = AsyncPool | ThreadPool
_VERBS: dict[type[Any], str] = {Ack: "ack", Nack: "nack", Reject: "reject", Release: "release"}
_TICK_SECONDS = 0.1
_BEAT_SECONDS = 1.0
_PULSE_SECONDS = 2.0
_INTERRUPT_SECONDS = 5.0
"""After the grace: so long what was interrupted may take to notice."""
_HURRIED_SECONDS = 0.5
"""The same, when somebody asked twice."""
_LAST_SECONDS = 2.0
"""At the very end: so long a thread of the worker may take to notice."""


class RunnerOptions(msgspec.Struct, frozen=True):
    """How a worker works."""

    queues: Mapping[str, int] | None = None
    """Weights by name; None is every queue of the app's tasks, with the same weight."""
    strict: bool = False
    """Earlier queues first, always, instead of turns by weight."""
    concurrency: int = 100
    """Most tasks at once, in each of the ways to run one."""
    grace: float = 30.0
    """Seconds that running tasks have to finish when the worker is stopped."""
    lease: float | None = None
    """Seconds; None is the shortest lease of the queues."""
    name: str | None = None
    """Who works, as messages and the journal tell."""
    unknown: str = "retry"
    """What becomes of a message without a task: ``retry`` after half a minute (it counts), or ``reject``."""
    children: int = os.cpu_count() or 1
    """Most tasks at once in child processes."""
    memory: int | None = None
    """Megabytes that a child may use."""
    recycle: int | None = None
    """Messages after which a child is replaced."""
    lease_keeper: bool = True
    """Keep leases from a process of its own. Without, a task that holds the interpreter may lose its lease."""


class Runner:
    """One worker. `run` works until `stop`; from another thread, a signal or a task."""

    UNKNOWN_SECONDS = 30.0

    def __init__(self, app: App, options: RunnerOptions | None = None) -> None:
        self.app = app
        self.options = options or RunnerOptions()
        if not 1 <= self.options.concurrency <= 10_000:
            raise InvalidConfig("concurrency is a number between 1 and 10000", field="concurrency")
        if self.options.unknown not in ("retry", "reject"):
            raise InvalidConfig("unknown is retry or reject", field="unknown")
        self.order = QueueOrder(
            dict.fromkeys(app.queues, 1) if self.options.queues is None else self.options.queues,
            strict=self.options.strict,
        )
        self.name = self.options.name or f"{socket.gethostname()}:{os.getpid()}"
        self.outages = Outages()
        self.started = threading.Event()
        self.done = 0
        self.tallies: dict[str, dict[str, int]] = {}
        """How attempts ended, by task."""
        self.alive_at = time.monotonic()
        """When the loop last moved."""
        self.on_pulse: Callable[[], None] = lambda: None
        """Called every few seconds, in the loop."""
        self._stop_asked: asyncio.Event | None = None
        self._stop_early = False
        self._hurry = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pools: tuple[Lane, ...] = ()
        self._held: dict[str, Current] = {}
        """All that is held, by receipt."""
        self._stopper = Stopper(self._held)
        self._loop_moved = threading.Event()
        self._loop_moved.set()

    # -- from outside

    def run(self) -> int:
        """Work until stopped. How many leases could not be settled, because the store did not answer at the end."""
        return event_loop.run(self._work(), _loop_factory())

    def stop(self, *, now: bool = False) -> None:
        """Claim no more, finish what runs within the grace period; ``now``: give back even that."""
        self._hurry = self._hurry or now
        self._stop_early = True
        for pool in self._pools:
            pool.halted = True  # at once: the loop may be busy with a task that blocks it
        loop, asked = self._loop, self._stop_asked
        if loop is not None and asked is not None:
            with contextlib.suppress(RuntimeError):  # it has ended meanwhile
                loop.call_soon_threadsafe(asked.set)

    @property
    def held(self) -> int:
        return len(self._held)

    @property
    def stopping(self) -> bool:
        return self._stop_early

    # -- the whole

    async def _work(self) -> int:
        self._loop = asyncio.get_running_loop()
        self._stop_asked = asyncio.Event()
        store = await asyncio.to_thread(lambda: self.app.store)
        heed(access.core(store))
        await asyncio.to_thread(self.app.put_schedules)
        lease = self.options.lease
        if lease is None:
            lease = await asyncio.to_thread(_shortest_lease, store, self.order.names)
        await asyncio.to_thread(access.run, store, access.verbs(store).sweep_notes())
        prefetch = Prefetch(self.options.concurrency)
        self._lease_keeper = await asyncio.to_thread(self._keep_alive, store, lease)
        self._task_store = LocalTaskStore(store, lease)
        self._settle_queue = SettleQueue(store, self.outages, self._settled)
        self._async_pool = AsyncPool(self._settle_queue, prefetch, self.options.concurrency)
        self._thread_pool = ThreadPool(self._settle_queue, prefetch, self.options.concurrency, call_task.run, "task")
        self._process_pool = ProcessPool(
            self._settle_queue,
            prefetch,
            self.options.children,
            memory=self.options.memory,
            recycle=self.options.recycle,
        )
        self._pools = (self._async_pool, self._thread_pool, self._process_pool)
        claims = await asyncio.to_thread(self._own_connection, store)
        self._claimer = Claimer(
            claims, self.order, prefetch, self.outages, lease=lease, worker=self.name,
            ended=lambda: self._settle_queue.taken, refused=lambda: self._settle_queue.refused, came=self._came,
        )  # fmt: skip
        self._ticks = Repeat("tampu-tick", _TICK_SECONDS, self._tick)
        self._beats = Repeat("tampu-beat", _BEAT_SECONDS, self._beat)
        pulse = asyncio.create_task(self._pulse(), name="tampu-pulse")
        self._claimer.start()
        self.started.set()
        log.info("%s works on %s", self.name, ", ".join(self.order.names))
        try:
            if not self._stop_early:
                await self._stop_asked.wait()
        finally:
            left = await self._end()
            pulse.cancel()
        if self._claimer.failure is not None:
            raise self._claimer.failure
        return left

    @staticmethod
    def _own_connection(store: Store) -> Store:
        """What claims wait on; over HTTP one that can be broken off."""
        if access.is_local(store):
            return store
        from tampu.client.remote import another

        return another(store)

    def _keep_alive(self, store: Store, lease: float) -> LeaseKeeper:
        if self.app.private or not self.options.lease_keeper:
            return LeaseKeeperThread(store, lease, self._stopper.stop)
        limits = [task.settings.timeout for task in self.app.tasks.values()]
        known = [limit for limit in limits if limit is not None]
        patience = max(known) + lease if known and len(known) == len(limits) else None
        return LeaseKeeperProcess(self.app.opening(), lease, patience, self._stopper.stop)

    # -- what comes

    def _came(self, leases: list[Lease]) -> None:
        """From the intake's thread; an empty list is its end."""
        assert self._loop is not None
        if not leases:
            with contextlib.suppress(RuntimeError):  # the loop has ended already
                self._loop.call_soon_threadsafe(self._intake_ended)
            return
        self._lease_keeper.add([lease.receipt for lease in leases])  # before any of them is started
        tasks, held, task_store = self.app.tasks, self._held, self._task_store
        known: list[Current] = []
        for lease in leases:
            task = tasks.get(lease.message.body.type)
            if task is None:
                self._unknown(lease)
            else:
                held[lease.receipt] = work = Current(lease, task, task_store)
                known.append(work)
        with contextlib.suppress(RuntimeError):  # a claim that was answered after the end: it runs out with its lease
            self._loop.call_soon_threadsafe(self._hand_out, known)
        self._ticks.wake()
        self._beats.wake()

    def _intake_ended(self) -> None:
        if self._claimer.failure is not None and self._stop_asked is not None:
            self._stop_asked.set()

    def _hand_out(self, works: list[Current]) -> None:
        """In the loop."""
        if self._ending:
            for work in works:
                self._settle_queue.put(work, Release(work.lease))
            return
        by_group: dict[Lane, list[Current]] = {}
        for work in works:
            work._pool = pool = self._pool(work.task)
            by_group.setdefault(pool, []).append(work)
        for pool, some in by_group.items():
            pool.put(some)

    _ending = False

    def _pool(self, task: Task[Any, Any]) -> Lane:
        if task.settings.execution == "process":
            return self._process_pool
        return self._async_pool if task.is_async else self._thread_pool

    def _unknown(self, lease: Lease) -> None:
        """Perhaps a newer worker knows it. Nothing is lost: it ends as a dead letter, which can be replayed."""
        kind = lease.message.type
        error = f"no task named {kind} in this worker"
        log.warning("%s %s: %s", kind, lease.id, error)
        settlement: Settlement = Nack(lease, error, self.UNKNOWN_SECONDS)
        if self.options.unknown == "reject":
            settlement = Reject(lease, UNKNOWN_TASK, error)
        self._settle_queue.put(Current(lease, _nobody(self.app, kind), self._task_store), settlement)

    def _settled(self, ended: Sequence[Ended]) -> None:
        """From the tray's thread."""
        receipts = []
        for work, settlement in ended:
            receipts.append(work.lease.receipt)
            tally = self.tallies.get(work.task.name)
            if tally is None:
                tally = self.tallies[work.task.name] = dict.fromkeys(("ack", "nack", "reject", "release", "lost"), 0)
            tally["lost" if settlement is None else _VERBS[type(settlement)]] += 1
        self.done += len(ended)
        self._lease_keeper.remove(receipts)
        for receipt in receipts:
            self._held.pop(receipt, None)
        self._claimer.nudge()

    # -- what has to be done every moment

    def _tick(self) -> bool:
        """Timeouts, and threads for what waits; again while something is held."""
        now = time.monotonic()
        late = [
            work for pool in self._pools for work in list(pool.running.values())
            if work._until is not None and work._until <= now
        ]  # fmt: skip
        self._stopper.stop([work.lease.receipt for work in late], TIMED_OUT)
        self._stopper.again()
        self._thread_pool.look()
        self._process_pool.look()
        return bool(self._held)

    async def _pulse(self) -> None:
        while True:
            self.alive_at = time.monotonic()
            self.on_pulse()
            await asyncio.sleep(_PULSE_SECONDS)

    def _beat(self) -> bool:
        """A sign of life, if the loop has moved since the last one; progress; again while something is held."""
        if self._loop_moved.is_set() and self._loop is not None:
            self._loop_moved.clear()
            self._lease_keeper.beat()
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._loop_moved.set)
        self._task_store.flush()
        return bool(self._held)

    # -- the end

    async def _end(self) -> int:
        """Nothing new is begun; what runs may finish; the rest is given back, uncounted."""
        self._ending = True
        for pool in self._pools:
            for work in pool.drain():
                self._settle_queue.put(work, Release(work.lease))
        self._claimer.stop()
        until = time.monotonic() + self.options.grace
        while not self._idle and time.monotonic() < until and not self._hurry:
            await asyncio.sleep(0.02)
        await asyncio.sleep(0)  # what the intake brought last is given back by `_hand_out`
        running = [work for work in list(self._held.values()) if work._place is not None]
        if running:
            log.warning("%d tasks did not finish within the grace period and are given back", len(running))
            self._stopper.stop([work.lease.receipt for work in running], STOPPING)
            until = time.monotonic() + (_HURRIED_SECONDS if self._hurry else _INTERRUPT_SECONDS)
            while not self._idle and time.monotonic() < until:
                await asyncio.sleep(0.02)
            for work in [work for pool in self._pools for work in list(pool.running.values())]:
                log.warning("%s %s goes on after it was asked to stop, and is not waited for", work.task.name, work.id)
                self._settle_queue.put(work, endings.stopped(work))
        await asyncio.to_thread(self._close)
        if self._claimer.ended:
            return self._settle_queue.left
        log.error("a claim was not answered; what it brings runs out with its lease")
        return self._settle_queue.left + 1

    @property
    def _idle(self) -> bool:
        return self._claimer.ended and all(pool.idle for pool in self._pools)

    def _close(self) -> None:
        """A store that does not answer is not waited for for ever."""
        self._claimer.join(_LAST_SECONDS)
        self._process_pool.close()
        self._ticks.close(_LAST_SECONDS)
        self._settle_queue.close(5.0 if not self._hurry else 1.0)
        self._beats.close(_LAST_SECONDS)
        self._lease_keeper.close()


@contextlib.contextmanager
def working(app: App, **options: Any) -> Iterator[Runner]:
    """A worker in a thread of its own, for tests and for programs that work besides; stopped at the end."""
    runner = Runner(app, RunnerOptions(**options))
    failure: list[BaseException] = []

    def run() -> None:
        try:
            runner.run()
        except BaseException as error:
            failure.append(error)
        finally:
            runner.started.set()

    thread = threading.Thread(target=run, name="tampu-worker", daemon=True)
    thread.start()
    runner.started.wait()
    try:
        yield runner
    finally:
        runner.stop()
        thread.join()
        if failure:
            raise failure[0]


def _shortest_lease(store: Store, queues: Sequence[str]) -> float:
    return min(store.queues.get(name).lease or 30.0 for name in queues)


def _loop_factory() -> Any:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


def _nobody(app: App, name: str) -> Task[Any, Any]:
    from tampu.worker.tasks import TaskOptions

    return Task(app, _no_function, name, TaskOptions(), {})


def _no_function() -> None:
    """Stands for the function of an unknown task."""
