"""The claimer: one thread that claims messages of all queues, up to the prefetch limit. It waits without polling."""

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
from tampu.worker.prefetch import Prefetch, QueueOrder

log = logging.getLogger("tampu.worker")
_WAIT_SECONDS = 3600.0
_MOST = 1_000
_CHECK_AGAIN_SECONDS = 0.25


class _Stopped(Exception):
    """The worker has stopped claiming."""


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
        on_leases: Callable[[list[Lease]], None],
    ) -> None:
        self._store = store
        self._order = order
        self._prefetch = prefetch
        self._outages = outages
        self._lease = lease
        self._worker = worker
        self._ended = ended
        self._refused = refused
        """True while the server refuses settlements because of a rate limit."""
        self._on_leases = on_leases
        self._may_claim = threading.Event()
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._waiter: Waiter | None = None
        self._polls = False
        """True while a claim waits at a server (long poll)."""
        self.claimed = 0
        self.failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="tampu-claim", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def held(self) -> int:
        return self.claimed - self._ended()

    def nudge(self) -> None:
        """A message has ended: perhaps more can be claimed."""
        if not self._may_claim.is_set():
            self._may_claim.set()

    def stop(self) -> None:
        """Stop claiming; a waiting claim returns nothing."""
        self._stop.set()
        self._may_claim.set()
        with self._lock:
            if self._waiter is not None:
                self._waiter.wake()
        if self._polls:
            self._store.close()  # ends the long poll; the claimer has its own connection

    @property
    def ended(self) -> bool:
        return not self._thread.is_alive()

    def join(self, patience: float) -> None:
        """Wait at most this long: a store that does not answer must not block the worker."""
        self._thread.join(patience)
        if not access.is_local(self._store):
            self._store.close()

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self._claim_once()
        except BaseException as error:
            self.failure = error
            raise
        finally:
            self._on_leases([])

    def _claim_once(self) -> None:
        self._may_claim.clear()
        free = min(self._prefetch.to_claim(self.held), _MOST)
        if free <= 0 or self._refused():
            # Check again without a nudge: the target grows while the running tasks take longer.
            self._may_claim.wait(_CHECK_AGAIN_SECONDS)
            return
        leases = self._outages.retry(lambda: self._claim(free), self._stop)
        if leases:  # also after `stop`: the runner releases what it has not started
            self.claimed += len(leases)
            self._on_leases(leases)

    def _claim(self, limit: int) -> list[Lease]:
        store, core, paused = self._store, access.core(self._store), False
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
        """Wait for messages like any claim, but let `stop` end the wait."""
        core = access.core(self._store)
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
