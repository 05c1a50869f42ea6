"""Fires the ticks of schedules when they are due.

What it has in memory only says when to check. Whether a tick fires is decided by the document of its schedule (see
`tampu.broker.schedules.stored`), so it does no harm if several schedulers run at once.
"""

from __future__ import annotations

import asyncio
import logging
import time

import msgspec

from tampu.broker.core import Core
from tampu.broker.schedules import fire, stored
from tampu.broker.schedules.fire import Refused
from tampu.engines.port import PollStatus
from tampu.model.errors import InvalidMessage
from tampu.model.times import SECOND

log = logging.getLogger("tampu.maintenance")
Name = tuple[str, str]
"""(tenant, name)"""
_READ_SECONDS = 0.5
"""All schedules are read again at most this often, though documents change with each tick."""
_TOGETHER = 200
_FIRST_WAIT_US = SECOND
_LONGEST_WAIT_US = 60 * SECOND


class Scheduler:
    def __init__(self, core: Core) -> None:
        self._core = core
        self._revision: int | None = None
        self._read_at = 0.0
        self._due: dict[Name, int] = {}
        self._versions: dict[Name, tuple[int, int | None]] = {}
        """(version of the document, when it is due)"""
        self._waits: dict[Name, int] = {}
        """How long to wait before the next try, for schedules whose message was refused."""
        self._next: int | None = None
        self.runs = self.done = 0

    def forget(self) -> None:
        """Another process is the leader now: read all schedules again when this one is."""
        self._revision = None

    def fire(self, status: PollStatus | None = None) -> int | None:
        """Fire what is due. Returns when the next tick is due."""
        status = status or self._core.engine.poll_status(())
        later = self._read(status)
        now = status.now_us
        if self._next is not None and self._next <= now:
            names = sorted((name for name, at in self._due.items() if at <= now), key=lambda n: (self._due[n], n))
            for start in range(0, len(names), _TOGETHER):
                self._fire(names[start : start + _TOGETHER], now)
            self._next = min(self._due.values(), default=None)
        return min((at for at in (self._next, later) if at is not None), default=None)

    def _fire(self, names: list[Name], now: int) -> None:
        if len(names) == 1:
            replies = [self._core.drive(fire.fire(*names[0]))]
        else:
            replies = asyncio.run(self._fire_together(names))  # so that they share their commits
        self.runs += 1
        self.done += sum(not isinstance(reply, Refused) for reply in replies)
        for name, reply in zip(names, replies, strict=True):
            if isinstance(reply, Refused):
                wait = min(self._waits.get(name, _FIRST_WAIT_US // 2) * 2, _LONGEST_WAIT_US)
                self._waits[name] = wait
                self._due[name] = now + wait
                tenant, schedule = name
                log.warning("schedule %s of tenant %s cannot publish, will try again: %s", schedule, tenant, reply.why)
                continue
            self._waits.pop(name, None)
            self._set_due(name, reply)

    async def _fire_together(self, names: list[Name]) -> list[int | Refused | None]:
        return await asyncio.gather(*(self._core.drive_async(fire.fire(*name)) for name in names))

    def _set_due(self, name: Name, at: int | None) -> None:
        if at is None:
            self._due.pop(name, None)
        else:
            self._due[name] = at

    def _read(self, status: PollStatus) -> int | None:
        """Read schedules that have changed. Returns when to read, if it is too soon now."""
        if status.revision == self._revision:
            return None
        engine = self._core.engine
        rest = self._read_at + _READ_SECONDS - time.monotonic()
        if rest > 0 and self._revision is not None:
            return status.now_us + round(rest * SECOND)
        self._read_at = time.monotonic()
        seen: dict[Name, tuple[int, int | None]] = {}
        for tenant in engine.documents(*stored.TENANTS):
            for document in engine.documents(stored.KIND, tenant.name):
                name = (document.tenant, document.name)
                known = self._versions.get(name)
                if known is not None and known[0] == document.version:
                    seen[name] = known
                    continue
                self._waits.pop(name, None)
                try:
                    seen[name] = document.version, stored.read(document).next_us
                except (msgspec.MsgspecError, InvalidMessage) as error:  # of a newer version, or an unknown zone
                    log.error("schedule %s of tenant %s cannot be read: %s", document.name, document.tenant, error)
                    seen[name] = document.version, None
        self._versions = seen
        self._due = {name: at for name, (_, at) in seen.items() if at is not None and name not in self._waits} | {
            name: self._due[name] for name in self._waits if name in seen and name in self._due
        }
        self._next = min(self._due.values(), default=None)
        self._revision = status.revision
        return None
