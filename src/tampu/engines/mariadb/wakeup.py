"""Wake-ups between processes: MariaDB has nothing that rings, so one thread looks.

What it looks at costs next to nothing: the end of an index, and one row. It looks often while somebody here waits and
others are at work, and seldom while nothing happens. Nobody depends on it: everybody also looks once a second.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

import pymysql

from tampu.engines.mariadb import connect
from tampu.engines.mariadb.database import Db
from tampu.model.errors import TampuError

log = logging.getLogger("tampu")
_OFTEN_SECONDS = 0.01
_SELDOM_SECONDS = 0.1
_CALM = 300
"""Looks without news after which it is seldom enough."""
_RETRY_SECONDS = 1.0


class Wakeup:
    def __init__(self, place: connect.Target, heard: Callable[[], bool], calm: Callable[[], bool]) -> None:
        self._place = place
        self._heard = heard
        self._calm = calm
        """Others ring by another way: looking seldom is enough."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tampu-bell", daemon=True)
        self._thread.start()

    def notify(self) -> None:
        """The others see the commit itself."""

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                db = connect.connect(self._place)
            except (pymysql.Error, TampuError) as error:
                log.debug("nobody looks for others for a moment: %s", error)
                self._stop.wait(_RETRY_SECONDS)
                if not self._stop.is_set():
                    self._heard()
                continue
            try:
                self._serve(db)
            except pymysql.Error as error:
                log.debug("the connection that looks for others was lost: %s", error)
                self._stop.wait(_OFTEN_SECONDS)
            finally:
                db.close()

    def _serve(self, db: Db) -> None:
        """Until the connection is lost or we are closed."""
        last: object = None
        calm = 0
        waits = True
        while not self._stop.is_set():
            pulse = db.row("poll_changes")
            calm = calm + 1 if pulse == last else 0
            if pulse != last:
                last = pulse
                waits = self._heard()
            self._stop.wait(_OFTEN_SECONDS if waits and calm < _CALM and not self._calm() else _SELDOM_SECONDS)

    def close(self) -> None:
        self._stop.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()
