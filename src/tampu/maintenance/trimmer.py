"""Removes ended messages, results, idempotency keys and journal records when their retention is over.

What a registered reader of the journal has not stored yet stays; what an archiving reader has stored may go sooner.
Each step is a small commit, followed by a rest at least as long, so that other calls are not held up.
"""

from __future__ import annotations

import time

from tampu.broker import journal_readers
from tampu.broker.admin import removal
from tampu.broker.core import Core
from tampu.broker.settings import DEFAULTS, KIND
from tampu.engines.port import Trim
from tampu.model.config import BUILT_IN, QueueConfig, read_config
from tampu.model.times import SECOND

_STEP = 500
_REST_SECONDS = 5.0
_IDLE_SECONDS = 30.0
"""The rest if there was nothing to remove."""


class Trimmer:
    def __init__(self, core: Core, journal_us: int) -> None:
        self._core = core
        self._journal_us = journal_us
        self._resume = time.monotonic() + _REST_SECONDS

    def trim(self) -> float:
        """Do a step if it is time. Returns how many seconds to rest."""
        left = self._resume - time.monotonic()
        if left > 0:
            return left
        began = time.monotonic()
        removed = self.step()
        took = time.monotonic() - began
        rest = max(took, 0.01) if removed >= _STEP else _REST_SECONDS if removed else _IDLE_SECONDS
        self._resume = time.monotonic() + rest
        return rest

    def step(self) -> int:
        """Remove a bounded number of things. Returns how many."""
        retention: dict[tuple[str, str], int] = {}
        engine = self._core.engine
        queues: dict[str, list[str]] = {}
        for tenant, queue in engine.queues():
            queues.setdefault(tenant, []).append(queue)
        for tenant, names in queues.items():
            own = {d.name: read_config(d.value) for d in engine.documents(KIND, tenant)}
            fallback = own.get(DEFAULTS, QueueConfig()).retention
            for queue in names:
                seconds = own.get(queue, QueueConfig()).retention
                seconds = fallback if seconds is None else seconds
                if seconds is not None:
                    retention[tenant, queue] = round(seconds * SECOND)
        default = round((BUILT_IN.retention or 0) * SECOND)
        known = journal_readers.registered(engine)
        archive = journal_readers.archive_after(known)
        if archive is not None:
            retention = {queue: min(own_us, archive) for queue, own_us in retention.items()}
            default = min(default, archive)
        read = journal_readers.read_by_all(known)
        for call in removal.unmark_used(engine):
            self._core.coalescer.submit(call)
        removed: int = self._core.coalescer.submit(Trim(retention, default, self._journal_us, _STEP, read))
        return removed
