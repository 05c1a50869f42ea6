"""Wake-ups between processes: MariaDB has no notifications, so one thread polls for changes.

A poll is cheap: it reads the end of an index and one row. It is frequent while claims wait here and other processes
commit, and rare while nothing happens. Wake-ups only save time: every process also checks once a second.
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
_UNCHANGED = 300
"""Polls without changes after which it polls rarely."""
_RETRY_SECONDS = 1.0


class Wakeup:
    notify = None
    """Nothing is sent: other processes poll."""

    def __init__(self, place: connect.Target, on_change: Callable[[], bool], by_redis: Callable[[], bool]) -> None:
        self._place = place
        self._on_remote_change = on_change
        self._by_redis = by_redis
        """True while wake-ups come through Redis: rare polls are enough."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tampu-wakeup", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                db = connect.connect(self._place)
            except (pymysql.Error, TampuError) as error:
                log.debug("wake-ups are off, retrying in %s s: %s", _RETRY_SECONDS, error)
                self._stop.wait(_RETRY_SECONDS)
                if not self._stop.is_set():
                    self._on_remote_change()
                continue
            try:
                self._serve(db)
            except pymysql.Error as error:
                log.debug("the connection for wake-ups was lost, reconnecting: %s", error)
                self._stop.wait(_OFTEN_SECONDS)
            finally:
                db.close()

    def _serve(self, db: Db) -> None:
        """Poll until the connection is lost or `close` is called."""
        last: object = None
        unchanged = 0
        waits = True
        while not self._stop.is_set():
            state = db.row("poll_changes")
            unchanged = unchanged + 1 if state == last else 0
            if state != last:
                last = state
                waits = self._on_remote_change()
            often = waits and unchanged < _UNCHANGED and not self._by_redis()
            self._stop.wait(_OFTEN_SECONDS if often else _SELDOM_SECONDS)

    def close(self) -> None:
        self._stop.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()
