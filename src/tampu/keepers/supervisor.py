"""The supervisor: one thread per open store that runs the keepers when something is due, and sleeps otherwise.

Of all processes on a store only the one that leads does the work; when it ends, the next to look takes over. Every
supervisor looks after its own waiters, once a second, in case a wake-up was lost.
"""

from __future__ import annotations

import logging
import threading

from tampu.broker.core import Core
from tampu.keepers.sweeper import Sweeper
from tampu.keepers.trimmer import Trimmer
from tampu.model.errors import TampuError
from tampu.model.times import SECOND

log = logging.getLogger("tampu.keepers")
_LOOK_SECONDS = 1.0
_RETRY_SECONDS = 1.0


class Supervisor:
    def __init__(self, core: Core, journal_us: int) -> None:
        self._core = core
        self._sweeper = Sweeper(core)
        self._trimmer = Trimmer(core, journal_us)
        self._wake = threading.Event()
        self._stopped = False
        self._next_us: int | None = None
        core.on_due = self._due
        core.on_stir = self._wake.set
        core.watched = True
        self._thread = threading.Thread(target=self._run, name="tampu-keepers", daemon=True)
        self._thread.start()

    def _due(self, at_us: int) -> None:
        """Something here will be due: wake only if that is sooner than what we sleep for."""
        if self._next_us is None or at_us < self._next_us:
            self._next_us = at_us
            self._wake.set()

    def _run(self) -> None:
        while not self._stopped:
            try:
                seconds = self._turn()
            except TampuError as error:
                if not self._stopped:
                    log.warning("keepers wait a moment: %s", error)
                seconds = _RETRY_SECONDS
            except Exception:  # a store whose keepers are gone for good would only look alive
                log.exception("keepers wait a moment")
                seconds = _RETRY_SECONDS
            self._wake.wait(seconds)
            self._wake.clear()

    def _turn(self) -> float:
        """Do what is due; how long there is nothing to do then."""
        core = self._core
        core.look()
        if not core.engine.lead():
            self._next_us = None
            return _LOOK_SECONDS
        self._next_us = self._sweeper.sweep()
        seconds = self._trimmer.trim()
        if self._next_us is not None:
            seconds = min(seconds, max(0.0, (self._next_us - core.engine.now()) / SECOND))
        return min(seconds, _LOOK_SECONDS)

    def stop(self) -> None:
        self._stopped = True
        self._wake.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()
