"""The intake: one thread that claims for all queues, as much as there is room for, and waits without polling."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from tampu.broker import access
from tampu.broker.commit_queue.waiters import Waiter
from tampu.broker.core import WaitForMessages
from tampu.broker.store import Store
from tampu.model.message import Lease
from tampu.worker.outages import Outages
from tampu.worker.prefetch import Prefetch
from tampu.worker.queue_order import QueueOrder

log = logging.getLogger("tampu.worker")
_WAIT_SECONDS = 3600.0
_MOST = 1_000
_LOOK_AGAIN_SECONDS = 0.25


class _Stopped(Exception):
    """The worker claims no more."""


class Claimer:
    def __init__(
        self,
        store: Store,
        order: QueueOrder,
        prefetch: Prefetch,
        outages: Outages,
        *,
        lease: float,
        worker: str,
        ended: Callable[[], int],
        refused: Callable[[], bool],
        came: Callable[[list[Lease]], None],
    ) -> None:
        self._q = store
        self._order = order
        self._prefetch = prefetch
        self._outages = outages
        self._lease = lease
        self._worker = worker
        self._ended = ended
        self._refused = refused
        """Are settlements refused, because the worker asks too much of its server?"""
        self._came = came
        self._room = threading.Event()
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._waiter: Waiter | None = None
        self._polls = False
        """A claim is waiting at a server."""
        self.claimed = 0
        self.failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="tampu-claim", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def held(self) -> int:
        return self.claimed - self._ended()

    def nudge(self) -> None:
        """Something has ended: there may be room."""
        if not self._room.is_set():
            self._room.set()

    def stop(self) -> None:
        """Claim no more; a claim that waits ends with nothing."""
        self._stop.set()
        self._room.set()
        with self._lock:
            if self._waiter is not None:
                self._waiter.wake()
        if self._polls:
            self._q.close()  # ends a long poll; it is a connection of its own

    @property
    def ended(self) -> bool:
        return not self._thread.is_alive()

    def join(self, patience: float) -> None:
        """Wait for so long; a store that does not answer must not keep the worker."""
        self._thread.join(patience)
        if not access.is_local(self._q):
            self._q.close()

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self._turn()
        except BaseException as error:
            self.failure = error
            raise
        finally:
            self._came([])

    def _turn(self) -> None:
        self._room.clear()
        free = min(self._prefetch.room(self.held), _MOST)
        if free <= 0 or self._refused():
            # Looks by itself too: how much should be held grows with the time that what runs takes.
            self._room.wait(_LOOK_AGAIN_SECONDS)
            return
        leases = self._outages.through(lambda: self._claim(free), self._stop)
        if leases:  # also those that were answered while it was stopped: they are given back as all that has not begun
            self.claimed += len(leases)
            self._came(leases)

    def _claim(self, limit: int) -> list[Lease]:
        store, core, paused = self._q, access.core(self._q), False
        began = time.perf_counter()

        def do(step: Any) -> Any:
            nonlocal paused
            if isinstance(step, WaitForMessages):
                paused = True
                return self._pause(step)
            return core.do(step)

        steps = access.verbs(store).claim(
            self._order.next(), limit=limit, lease=self._lease, wait=_WAIT_SECONDS, worker=self._worker
        )
        self._polls = not access.is_local(store)
        try:
            leases = [] if self._stop.is_set() else core.drive(steps, do)
        except _Stopped:
            return []
        finally:
            self._polls = False
        if not paused and access.is_local(store):
            self._prefetch.claimed(time.perf_counter() - began)
        return leases

    def _pause(self, step: WaitForMessages) -> None:
        """As a claim of a thread waits, but so that `stop` can end it."""
        core = access.core(self._q)
        waiter = Waiter(step.queues, None)
        with self._lock:
            self._waiter = waiter
        core.waiting.join(waiter)
        try:
            if not self._stop.is_set() and not core.arrived_since_claim(step):
                waiter.wait(step.seconds)
        finally:
            core.waiting.leave(waiter)
            with self._lock:
                self._waiter = None
        if self._stop.is_set():
            raise _Stopped
