"""Maintenance tasks in small commits: trim, sweep, reorder. When each runs is decided by `supervisor`."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence

from tampu.broker import audit, journal_readers
from tampu.broker.admin import removal, reorder
from tampu.broker.core import Core
from tampu.broker.dead.retention import DeadRetention, limited
from tampu.broker.policies.holds.verbs import holds_of
from tampu.broker.settings import KIND
from tampu.engines.port import Engine, PollStatus, Sweep, Swept, Trim
from tampu.model.config import BUILT_IN, QueueConfig, inherit, parents, read_config
from tampu.model.errors import VersionConflict
from tampu.model.times import SECOND

_STEP = 500
_AUDIT_SECONDS = 3600.0
"""Between two looks for records of the audit trail that are past their time."""
_REST_SECONDS = 5.0
_IDLE_SECONDS = 30.0
"""The rest if there was nothing to remove."""


class Trimmer:
    """Removes ended messages, results, idempotency keys and journal records when their retention is over, and dead
    letters that are too old or too many.

    What a registered reader of the journal has not stored yet stays; what an archiving reader has stored may go sooner.
    Each step is followed by a rest at least as long, so that other calls are not held up.
    """

    def __init__(self, core: Core, journal_us: int) -> None:
        self._core = core
        self._journal_us = journal_us
        self.runs = self.done = 0
        self._resume = time.monotonic() + _REST_SECONDS
        self._audit_at = 0.0
        self._dead = DeadRetention(core.engine)

    def trim(self, *, now: bool = False) -> float:
        """Do a step if it is time, or ``now``. Returns how many seconds to rest."""
        left = self._resume - time.monotonic()
        if left > 0 and not now:
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
        of_dead: dict[tuple[str, str], QueueConfig] = {}
        engine = self._core.engine
        queues: dict[str, list[str]] = {}
        for tenant, queue in engine.queues():
            queues.setdefault(tenant, []).append(queue)
        for tenant, names in queues.items():
            own = {d.name: read_config(d.value) for d in engine.documents(KIND, tenant)}
            for queue in names:
                layers = [own[name] for name in (queue, *parents(queue)) if name in own]
                if not layers:
                    continue
                config = inherit(*layers)
                if config.retention is not None:
                    retention[tenant, queue] = round(config.retention * SECOND)
                if limited(config):
                    of_dead[tenant, queue] = config
        default = round((BUILT_IN.retention or 0) * SECOND)
        known = journal_readers.registered(engine)
        archive = journal_readers.archive_after(known)
        if archive is not None:
            retention = {queue: min(own_us, archive) for queue, own_us in retention.items()}
            default = min(default, archive)
        under_hold = list(_under_hold(engine, queues))
        for queue_name in under_hold:
            retention[queue_name] = engine.now()  # nothing ended before 1970
            of_dead.pop(queue_name, None)
        read = journal_readers.read_by_all(known)
        for call in removal.unmark_used(engine):
            self._core.coalescer.submit(call)
        self._trim_audit(queues)
        trim = Trim(retention, default, self._journal_us, _STEP, read, keep_results=bool(under_hold))
        removed: int = self._core.coalescer.submit(trim)
        for purge in self._dead.purges(of_dead, known, _STEP):
            removed += self._core.coalescer.submit(purge)
        self.runs += bool(removed)
        self.done += removed
        return removed

    def _trim_audit(self, tenants: Iterable[str]) -> None:
        if time.monotonic() >= self._audit_at:
            self._audit_at = time.monotonic() + _AUDIT_SECONDS
            for tenant in tenants:
                for outdated in audit.outdated(self._core.engine, tenant, _STEP):
                    self._core.coalescer.submit(outdated)


def _under_hold(engine: Engine, queues: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, str]]:
    """The queues that a legal hold is for, of those of each tenant."""
    for tenant, names in queues.items():
        holds = holds_of(engine, tenant)
        for queue in names if holds else ():
            if any(hold.applies_to(queue) for hold in holds):
                yield tenant, queue


class Sweeper:
    """Promotes delayed messages that are due, reaps expired leases, expires messages."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self.runs = self.done = 0

    def sweep(self, status: PollStatus | None = None) -> int | None:
        """Sweep in bounded steps until nothing is due. Returns when something is due next."""
        status = status or self._core.engine.poll_status(())
        now, next_us = status.now_us, status.due_us
        while next_us is not None and next_us <= now:
            swept: Swept = self._core.coalescer.submit(Sweep(_STEP))
            now, next_us = self._core.engine.now(), swept.next_us
            self.runs += 1
            self.done += swept.moved
        return next_us


class Reorderer:
    """Completes a change of a queue's ordering or group limits; see `tampu.broker.admin.reorder`."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._revision = -1
        self._pending = False
        self.runs = self.done = 0

    def rank(self, status: PollStatus | None = None) -> None:
        """Complete changes that are old enough. Costs nothing if no settings have changed."""
        engine = self._core.engine
        status = status or engine.poll_status(())
        if status.revision == self._revision and not self._pending:
            return
        self._pending = False
        before = status.now_us - reorder.NOTICED_US
        for document, mark in reorder.marked(engine):
            if mark.since_us > before:
                self._pending = True
                continue
            self._core.drive(reorder.follow(document.tenant, document.name, ranks=mark.ranks))
            self.runs += 1
            self.done += 1
            with contextlib.suppress(VersionConflict):  # changed again: the new mark is handled later
                self._core.coalescer.submit(reorder.unmarking(document))
        self._revision = status.revision
