"""Carries on replays of dead letters: those with a rate, and those whose caller has died or has left the rest."""

from __future__ import annotations

import logging

from tampu.broker.core import Core, Steps
from tampu.broker.dead import jobs
from tampu.engines.port import PollStatus
from tampu.model.errors import NotFound, StorageError, TampuError, VersionConflict

log = logging.getLogger("tampu.maintenance")
_MOST = 20
"""Steps of one turn, so that delays and leases are not held up."""


class Replayer:
    def __init__(self, core: Core) -> None:
        self._core = core
        self.runs = self.done = 0
        self._revision = -1
        self._next_us: int | None = None

    def replay(self, status: PollStatus | None = None) -> int | None:
        """Do what is due. Returns when something is due next. Costs nothing if no document has changed."""
        engine = self._core.engine
        status = status or engine.poll_status(())
        if status.revision == self._revision and (self._next_us is None or self._next_us > status.now_us):
            return self._next_us
        self._revision = status.revision
        found = [(jobs.decode(document.value), document.name) for document in engine.documents(jobs.KIND, jobs.TENANT)]
        found.sort(key=lambda job: (job[0].next_us, job[1]))
        for job, name in found[:_MOST]:
            if job.next_us > status.now_us:
                break
            self._advance(name, job.count)
            self._revision = -1  # look again: it may be due again
        rest = [job.next_us for job, _ in found if job.next_us > status.now_us]
        self._next_us = status.now_us if self._revision == -1 else min(rest, default=None)
        return self._next_us

    def _advance(self, name: str, count: int) -> None:
        tenant, _, id = name.partition("/")
        try:
            job = self._core.drive(jobs.advance(self._core, tenant, id))
            self.runs += 1
            self.done += job.count - count
        except (VersionConflict, NotFound):  # somebody else has changed it
            pass
        except StorageError:
            raise
        except TampuError as error:
            log.warning("replay %s of tenant %s cannot go on, cancelled: %s", id, tenant, error)
            self._core.drive(_cancel(tenant, id))


def _cancel(tenant: str, id: str) -> Steps[None]:
    _, call = yield from jobs.stop(tenant, id, "cancelled")
    yield call
