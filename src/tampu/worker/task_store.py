"""Notes, progress and lease extensions of tasks that run in this process: they go straight to the store."""

from __future__ import annotations

import logging
import threading
from typing import Any

from tampu.broker import access
from tampu.broker.store import Store
from tampu.model.errors import LeaseLost, TampuError
from tampu.model.message import Lease
from tampu.model.times import Duration
from tampu.worker.current import Current
from tampu.worker.outages import RETRYABLE

log = logging.getLogger("tampu.worker")


class LocalTaskStore:
    def __init__(self, store: Store, lease: float) -> None:
        self._store = store
        self._lease = lease
        self._lock = threading.Lock()
        self._progressed: dict[str, Current] = {}

    def read_note(self, lease: Lease) -> Any:
        return access.run(self._store, access.verbs(self._store).read_note(lease.message.id))

    def write_note(self, lease: Lease, note: Any) -> None:
        access.run(self._store, access.verbs(self._store).write_note(lease.id, lease.receipt, note, self._lease))

    def extend(self, lease: Lease, by: Duration | None) -> None:
        self._store.extend(lease, self._lease if by is None else by)

    def progressed(self, work: Current) -> None:
        work._noted = True
        with self._lock:
            self._progressed[work.lease.receipt] = work

    def flush(self) -> None:
        """Store progress that has changed since the last flush. What fails now is tried again at the next flush."""
        with self._lock:
            progressed_works, self._progressed = self._progressed, {}
        waiting = dict(progressed_works)
        for receipt, work in progressed_works.items():
            try:
                if work._runs_in is not None:  # it still runs
                    work._known_note()
                    work._save_note()
            except RETRYABLE:
                break  # the others would fail too
            except LeaseLost:
                pass  # the lease keeper reports it
            except TampuError as error:  # it would be refused again
                log.warning("%s %s: its progress cannot be stored: %s", work.task.name, work.id, error)
            del waiting[receipt]
        with self._lock:
            self._progressed = {**waiting, **self._progressed}
