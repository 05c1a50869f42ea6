"""The runner: claims messages of an app's tasks, runs the tasks, and settles the messages.

The claimer's thread claims, the pools run tasks, the settle queue's thread settles, and the lease keeper extends
leases. The event loop never calls the store, so that an outage does not stop running tasks.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from tampu.broker import access
from tampu.broker.store import Store
from tampu.model.errors import InvalidConfig
from tampu.model.message import Lease
from tampu.model.outcome import Ack, AskReview, Nack, Reject, Release, Settlement
from tampu.model.reasons import UNKNOWN_TASK
from tampu.model.similar import did_you_mean
from tampu.worker import endings
from tampu.worker.app import App
from tampu.worker.claimer import Claimer
from tampu.worker.current import STOPPING, TIMED_OUT, Current
from tampu.worker.leases.lease_keeper import LeaseKeeperProcess, LeaseKeeperThread
from tampu.worker.outages import Outages
from tampu.worker.pools import call_task, event_loop
from tampu.worker.pools.async_pool import AsyncPool
from tampu.worker.pools.interrupt import defer_interrupts
from tampu.worker.pools.process_pool import ProcessPool
from tampu.worker.pools.stopper import Stopper
from tampu.worker.pools.thread_pool import ThreadPool
from tampu.worker.prefetch import Prefetch, QueueOrder
from tampu.worker.repeat import Repeat
from tampu.worker.settle_queue import Ended, SettleQueue
from tampu.worker.task_store import LocalTaskStore
from tampu.worker.tasks import Task

log = logging.getLogger("tampu.worker")
Pool = AsyncPool | ThreadPool
_VERBS: dict[type[Any], str] = {Ack: "ack", Nack: "nack", Reject: "reject", Release: "release", AskReview: "release"}
_TICK_SECONDS = 0.1
_BEAT_SECONDS = 1.0
_PULSE_SECONDS = 2.0
_INTERRUPT_SECONDS = 5.0
"""After the grace period: how long interrupted tasks may take to end."""
_HURRIED_SECONDS = 0.5
"""The same, after a second request to stop."""
_LAST_SECONDS = 2.0
"""At the very end: how long each thread of the worker may take to end."""


class RunnerOptions(msgspec.Struct, frozen=True):
    """How a worker works."""

    queues: Mapping[str, int] | None = None
    """Weights by queue name; None: all queues of the app's tasks, with equal weights."""
    strict: bool = False
    """Always earlier queues first, instead of turns by weight."""
    concurrency: int = 100
    """Maximum of async tasks at once, and of tasks in threads."""
    grace: float = 30.0
    """Seconds that running tasks have to finish when the worker stops."""
    lease: float | None = None
    """Seconds; None: the shortest lease of the queues."""
    name: str | None = None
    """Name of the worker in messages and the journal; None: host and process id."""
    unknown: str = "retry"
    """For a message without a task: ``retry`` after 30 seconds (the attempt counts), or ``reject``."""
    children: int = os.cpu_count() or 1
    """Maximum of tasks at once in child processes."""
    memory: int | None = None
    """Megabytes that a child may use."""
    recycle: int | None = None
    """Number of messages after which a child is replaced."""
    lease_keeper: bool = True
    """Extend leases from a separate process. Without it, a task that blocks the interpreter may lose its lease."""


class Runner:
    """One worker. `run` works until `stop` is called, from another thread, a signal handler or a task."""

    UNKNOWN_SECONDS = 30.0

    def __init__(self, app: App, options: RunnerOptions | None = None) -> None:
        self.app = app
        self.options = options or RunnerOptions()
        if not 1 <= self.options.concurrency <= 10_000:
            raise InvalidConfig("concurrency must be between 1 and 10000", field="concurrency")
        if self.options.unknown not in ("retry", "reject"):
            raise InvalidConfig("unknown must be retry or reject", field="unknown")
        self.order = QueueOrder(
            dict.fromkeys(app.queues, 1) if self.options.queues is None else self.options.queues,
            strict=self.options.strict,
        )
        self.name = self.options.name or f"{socket.gethostname()}:{os.getpid()}"
        self.outages = Outages()
        self.started = threading.Event()
        self.done = 0
        self.outcomes: dict[str, dict[str, int]] = {}
        """Counts of outcomes, by task."""
        self.alive_at = time.monotonic()
        """When the event loop last ran."""
        self.on_pulse: Callable[[], None] = lambda: None
        """Called every few seconds, in the loop."""
        self._stop_asked: asyncio.Event | None = None
        self._stop_early = False
        self._hurry = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pools: tuple[Pool, ...] = ()
        self._held: dict[str, Current] = {}
        """All leased messages, by receipt."""
        self._stopper = Stopper(self._held)
        self._loop_moved = threading.Event()
        self._loop_moved.set()

    # -- from outside

    def run(self) -> int:
        """Work until stopped. Returns how many leases could not be settled because the store did not answer."""
        return event_loop.run(self._work(), _loop_factory())

    def stop(self, *, now: bool = False) -> None:
        """Stop claiming and finish running tasks within the grace period; ``now``: release them instead."""
        self._hurry = self._hurry or now
        self._stop_early = True
        for pool in self._pools:
            pool.halted = True  # not through the loop: a task may block it
        loop, asked = self._loop, self._stop_asked
        if loop is not None and asked is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(asked.set)

    @property
    def held(self) -> int:
        return len(self._held)

    def held_by_task(self) -> dict[str, int]:
        """Leased messages of this worker, by task."""
        return dict(Counter(work.task.name for work in list(self._held.values())))

    @property
    def stopping(self) -> bool:
        return self._stop_early

    # -- start to end

    async def _work(self) -> int:
        self._loop = asyncio.get_running_loop()
        self._stop_asked = asyncio.Event()
        store = await asyncio.to_thread(lambda: self.app.store)
        defer_interrupts(access.core(store))
        await asyncio.to_thread(self.app.put_schedules)
        lease = self.options.lease
        if lease is None:
            lease = await asyncio.to_thread(_shortest_lease, store, self.order.names)
        await asyncio.to_thread(access.run, store, access.verbs(store).sweep_notes())
        prefetch = Prefetch(self.options.concurrency)
        self._lease_keeper = await asyncio.to_thread(self._start_lease_keeper, store, lease)
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
            ended=lambda: self._settle_queue.taken, refused=lambda: self._settle_queue.refused,
            on_leases=self._on_leases,
        )  # fmt: skip
        self._ticks = Repeat("tampu-tick", _TICK_SECONDS, self._tick)
        self._beats = Repeat("tampu-beat", _BEAT_SECONDS, self._beat)
        pulse = asyncio.create_task(self._pulse(), name="tampu-pulse")
        self._claimer.start()
        self.started.set()
        log.info("%s is working", self.name)
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
        """The store that claims wait on; over HTTP a second connection, which `stop` can close."""
        if access.is_local(store):
            return store
        from tampu.client.remote import another

        return another(store)

    def _start_lease_keeper(self, store: Store, lease: float) -> LeaseKeeperThread | LeaseKeeperProcess:
        if self.app.private or not self.options.lease_keeper:
            return LeaseKeeperThread(store, lease, self._stopper.stop)
        limits = [task.settings.timeout for task in self.app.tasks.values()]
        known = [limit for limit in limits if limit is not None]
        patience = max(known) + lease if known and len(known) == len(limits) else None
        return LeaseKeeperProcess(self.app.opening(), lease, patience, self._stopper.stop)

    # -- messages

    def _on_leases(self, leases: list[Lease]) -> None:
        """Called in the claimer's thread. An empty list: the claimer has ended."""
        assert self._loop is not None
        if not leases:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._on_claimer_end)
            return
        self._lease_keeper.add([lease.receipt for lease in leases])  # before any task starts
        tasks, held, task_store = self.app.tasks, self._held, self._task_store
        known: list[Current] = []
        for lease in leases:
            task = tasks.get(lease.message.body.type)
            if task is None:
                self._unknown(lease)
            else:
                held[lease.receipt] = work = Current(lease, task, task_store)
                known.append(work)
        with contextlib.suppress(RuntimeError):  # the claim returned after the end: these leases expire
            self._loop.call_soon_threadsafe(self._dispatch, known)
        self._ticks.wake()
        self._beats.wake()

    def _on_claimer_end(self) -> None:
        if self._claimer.failure is not None and self._stop_asked is not None:
            self._stop_asked.set()

    def _dispatch(self, works: list[Current]) -> None:
        """Called in the event loop."""
        if self._ending:
            for work in works:
                self._settle_queue.put(work, Release(work.lease))
            return
        by_pool: dict[Pool, list[Current]] = {}
        for work in works:
            work._pool = pool = self._pool(work.task)
            by_pool.setdefault(pool, []).append(work)
        for pool, pool_works in by_pool.items():
            pool.put(pool_works)

    _ending = False

    def _pool(self, task: Task[Any, Any]) -> Pool:
        if task.settings.execution == "process":
            return self._process_pool
        return self._async_pool if task.is_async else self._thread_pool

    def _unknown(self, lease: Lease) -> None:
        """Perhaps a newer worker knows the task. Nothing is lost: at worst it is dead-lettered and can be replayed."""
        kind = lease.message.type
        error = f"this worker has no task named {kind}{did_you_mean(kind, self.app.tasks)}"
        log.warning("%s %s: %s", kind, lease.id, error)
        settlement: Settlement = Nack(lease, error, self.UNKNOWN_SECONDS)
        if self.options.unknown == "reject":
            settlement = Reject(lease, UNKNOWN_TASK, error)
        self._settle_queue.put(Current(lease, _unknown_task(self.app, kind), self._task_store), settlement)

    def _settled(self, ended: Sequence[Ended]) -> None:
        """Called in the settle queue's thread."""
        receipts = []
        for work, settlement in ended:
            receipts.append(work.lease.receipt)
            counts = self.outcomes.get(work.task.name)
            if counts is None:
                counts = self.outcomes[work.task.name] = dict.fromkeys(("ack", "nack", "reject", "release", "lost"), 0)
            counts["lost" if settlement is None else _VERBS[type(settlement)]] += 1
        self.done += len(ended)
        self._lease_keeper.remove(receipts)
        for receipt in receipts:
            self._held.pop(receipt, None)
        self._claimer.nudge()

    # -- at intervals

    def _tick(self) -> bool:
        """Stop tasks that timed out; start threads for waiting messages. True while messages are held."""
        now = time.monotonic()
        late = [
            work for pool in self._pools for work in list(pool.running.values())
            if work._until is not None and work._until <= now
        ]  # fmt: skip
        self._stopper.stop([work.lease.receipt for work in late], TIMED_OUT)
        self._stopper.repeat()
        self._thread_pool.add_threads()
        self._process_pool.add_threads()
        return bool(self._held)

    async def _pulse(self) -> None:
        while True:
            self.alive_at = time.monotonic()
            self.on_pulse()
            await asyncio.sleep(_PULSE_SECONDS)

    def _beat(self) -> bool:
        """Send a heartbeat if the loop has run since the last one; store progress. True while messages are held."""
        if self._loop_moved.is_set() and self._loop is not None:
            self._loop_moved.clear()
            self._lease_keeper.beat()
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._loop_moved.set)
        self._task_store.flush()
        return bool(self._held)

    # -- the end

    async def _end(self) -> int:
        """Start nothing new, let running tasks finish, and release the rest; a release does not count as an attempt."""
        self._ending = True
        for pool in self._pools:
            for work in pool.drain():
                self._settle_queue.put(work, Release(work.lease))
        self._claimer.stop()
        until = time.monotonic() + self.options.grace
        while not self._idle and time.monotonic() < until and not self._hurry:
            await asyncio.sleep(0.02)
        await asyncio.sleep(0)  # lets `_dispatch` release what the claimer claimed last
        running = [work for work in list(self._held.values()) if work._runs_in is not None]
        if running:
            log.warning("%d tasks did not finish within the grace period; they are stopped and released", len(running))
            self._stopper.stop([work.lease.receipt for work in running], STOPPING)
            until = time.monotonic() + (_HURRIED_SECONDS if self._hurry else _INTERRUPT_SECONDS)
            while not self._idle and time.monotonic() < until:
                await asyncio.sleep(0.02)
            for work in [work for pool in self._pools for work in list(pool.running.values())]:
                log.warning("%s %s did not stop when asked to; not waiting for it", work.task.name, work.id)
                self._settle_queue.put(work, endings.stopped(work))
        await asyncio.to_thread(self._close)
        if self._claimer.ended:
            return self._settle_queue.left
        log.error("a claim was not answered; what it claims is delivered again when the leases expire")
        return self._settle_queue.left + 1

    @property
    def _idle(self) -> bool:
        return self._claimer.ended and all(pool.idle for pool in self._pools)

    def _close(self) -> None:
        """Each wait is limited: the store may not answer."""
        self._claimer.join(_LAST_SECONDS)
        self._process_pool.close()
        self._ticks.close(_LAST_SECONDS)
        self._settle_queue.close(5.0 if not self._hurry else 1.0)
        self._beats.close(_LAST_SECONDS)
        self._lease_keeper.close()


@contextlib.contextmanager
def working(app: App, **options: Any) -> Iterator[Runner]:
    """Run a worker in a thread inside a ``with`` block, for tests and for programs that do other things too."""
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


def _unknown_task(app: App, name: str) -> Task[Any, Any]:
    from tampu.worker.tasks import TaskOptions

    return Task(app, _no_function, name, TaskOptions(), {})


def _no_function() -> None:
    """Placeholder for the function of an unknown task."""
