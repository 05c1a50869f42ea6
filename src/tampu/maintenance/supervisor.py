"""The supervisor: one thread per open store. It runs the maintenance tasks when something is due, else it sleeps.

Of all processes with the store open only the leader does the work. When it ends, another process takes over within a
second or so. Every supervisor also checks once a second for messages its own waiters need, in case a wake-up was lost.
"""

from __future__ import annotations

import logging
import threading
import time

from tampu.broker import timers
from tampu.broker.agents.stored import (
    ALERTS,
    EXPIRY,
    RECOVERY,
    REORDER,
    REPLAYS,
    RETENTION,
    SCHEDULES,
    TIMERS,
    WEBHOOKS,
    Report,
)
from tampu.broker.core import Core
from tampu.broker.followers import FOLLOWERS
from tampu.maintenance.agents import Agents
from tampu.maintenance.alerts import AlertTask
from tampu.maintenance.dead import Replayer
from tampu.maintenance.follower import Follower
from tampu.maintenance.recovery import Recovery
from tampu.maintenance.scheduler import Scheduler
from tampu.maintenance.tasks import Reorderer, Sweeper, Trimmer
from tampu.maintenance.timers import Timers
from tampu.maintenance.webhooks.sender import WebhookSender
from tampu.model.errors import TampuError
from tampu.model.times import SECOND

log = logging.getLogger("tampu.maintenance")
_LOOK_SECONDS = 1.0
_RETRY_SECONDS = 1.0


class Supervisor:
    def __init__(self, core: Core, journal_us: int) -> None:
        self._core = core
        self.leads = False
        self._sweeper = Sweeper(core)
        self._trimmer = Trimmer(core, journal_us)
        self._reorderer = Reorderer(core)
        self._scheduler = Scheduler(core)
        self._alerts = AlertTask(core)
        self._replayer = Replayer(core)
        self._recovery = Recovery(core)
        self._timers = Timers(core)
        self._agents = Agents(core)
        self._webhooks = WebhookSender(core, lambda: self.leads and not self._agents.paused(WEBHOOKS))
        self._follower = Follower(core, lambda: self.leads, self._agents.paused)
        self._follower.enroll(FOLLOWERS)  # from here on they miss nothing
        self._wake = threading.Event()
        self._stopped = False
        self._next_us: int | None = None
        core.on_due = self._due
        core.on_change = self._changed
        core.on_ready[timers.QUEUE] = self._timers.became_ready
        core.watched = True
        core.maintenance = self
        self.last_run_at = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="tampu-maintenance", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def reports(self) -> dict[str, Report]:
        return self._agents.reports()

    def _due(self, at_us: int) -> None:
        """Wake the thread if this is due sooner than what it sleeps for."""
        if self._next_us is None or at_us < self._next_us:
            self._next_us = at_us
            self._wake.set()

    def _changed(self) -> None:
        self._wake.set()
        self._follower.wake()

    def _run(self) -> None:
        logged: str | None = None
        """Code of the error that was logged, so that an outage is logged once however long it takes."""
        while not self._stopped:
            try:
                seconds = self._turn()
                if logged is not None:
                    log.warning("maintenance works again")
                logged = None
            except TampuError as error:
                if not self._stopped and error.code != logged:
                    log.warning("maintenance failed, retrying: %s", error)
                    logged = error.code
                seconds = _RETRY_SECONDS
            except Exception:  # a store without maintenance would only seem to work
                log.exception("maintenance failed, retrying")
                seconds = _RETRY_SECONDS
            self._wake.wait(seconds)
            self._wake.clear()

    def _turn(self) -> float:
        """Do what is due. Returns how many seconds to sleep then."""
        self.last_run_at = began = time.monotonic()
        status = self._core.poll_status()
        self.leads = status.free and self._core.engine.lead()
        if not self.leads:
            self._next_us = None
            self._scheduler.forget()
            self._timers.forget()
            self._agents.forget()
            self._alerts.forget()
            return _LOOK_SECONDS
        run, asked = self._agents.run, self._agents.asked
        self._agents.refresh(status)
        self._follower.on_poll(status)
        self._follower.start()
        if asked(SCHEDULES):
            self._scheduler.forget()
        dues = (
            run(EXPIRY, self._sweeper, lambda: self._sweeper.sweep(status)),
            run(SCHEDULES, self._scheduler, lambda: self._scheduler.fire(status)),
            run(REPLAYS, self._replayer, lambda: self._replayer.replay(status)),
        )
        if asked(TIMERS):
            self._timers.forget()
        run(TIMERS, self._timers, self._timers.handle)
        self._next_us = min((at for at in dues if at is not None), default=None)
        run(REORDER, self._reorderer, lambda: self._reorderer.rank(status))  # it is never due before the next turn
        run(ALERTS, self._alerts, lambda: self._alerts.evaluate(status, now=asked(ALERTS)))
        run(WEBHOOKS, self._webhooks, lambda: self._webhooks.turn(status))
        run(RECOVERY, self._recovery, lambda: self._recovery.look(status, now=asked(RECOVERY)))
        seconds = run(RETENTION, self._trimmer, lambda: self._trimmer.trim(now=asked(RETENTION))) or _LOOK_SECONDS
        if self._next_us is not None:
            passed = time.monotonic() - began
            seconds = min(seconds, max(0.0, (self._next_us - status.now_us) / SECOND - passed))
        return min(seconds, _LOOK_SECONDS)

    def stop(self) -> None:
        self._stopped = True
        self._wake.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()
        self._follower.stop()
        self._webhooks.stop()
        self._recovery.stop()
