"""The desk of tasks that run in this process: their notes, progress and extensions go straight to the store."""

from __future__ import annotations

import threading
from typing import Any

from tampu.broker.queue import Queue
from tampu.model.errors import LeaseLost
from tampu.model.message import Lease
from tampu.model.times import Duration
from tampu.worker.current import Current


class StoreDesk:
    def __init__(self, q: Queue, lease: float) -> None:
        self._q = q
        self._lease = lease
        self._lock = threading.Lock()
        self._moved: dict[str, Current] = {}

    def read_note(self, lease: Lease) -> Any:
        return self._q._drive(self._q._verbs.read_note(lease.message.id))

    def write_note(self, lease: Lease, note: Any) -> None:
        self._q._drive(self._q._verbs.write_note(lease.id, lease.receipt, note, self._lease))

    def extend(self, lease: Lease, by: Duration | None) -> None:
        self._q.extend(lease, self._lease if by is None else by)

    def progressed(self, work: Current) -> None:
        work._noted = True
        with self._lock:
            self._moved[work.lease.receipt] = work

    def flush(self) -> None:
        """Store what has moved since the last time."""
        with self._lock:
            moved, self._moved = self._moved, {}
        for work in moved.values():
            if work._place is not None:  # it still runs
                try:
                    work._known_note()
                    work._save_note()
                except LeaseLost:
                    continue  # the warden tells
