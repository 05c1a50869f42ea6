"""Wake-ups between processes: NOTIFY, a few times a second at most, outside of any commit.

A NOTIFY inside a commit takes a lock on the whole database until it is on disk. So one thread per engine rings on a
connection of its own after the commits, and hears the others there. When that connection is lost, or there is a pooler
that can not listen, it looks by itself now and then; nobody depends on it, everybody also looks once a second.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import wait  # unlike select, it takes handles above 1,023

import psycopg

from tampu.engines.postgres import connect
from tampu.engines.postgres.database import Db
from tampu.model.errors import TampuError

log = logging.getLogger("tampu")
_APART_SECONDS = 0.01
"""Between two rings: what comes meanwhile is one ring."""
_RELAXED_SECONDS = 0.025
_LOOK_SECONDS = 0.25
_RETRY_SECONDS = 1.0
_COUNT_SECONDS = 0.5
"""Between two looks whether anybody else listens at all."""


class Wakeup:
    def __init__(self, place: connect.Target, heard: Callable[[], bool]) -> None:
        self._place = place
        self._heard = heard
        self._me = secrets.token_hex(8)
        self._channel = f"tampu_{place.schema}"
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)
        self._due = False
        self._stopped = False
        self._closing = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="tampu-bell", daemon=True)
        self._thread.start()

    def notify(self) -> None:
        """Wake the others, soon."""
        if not self._due:
            self._due = True
            self._poke()

    def _poke(self) -> None:
        with self._closing, contextlib.suppress(BlockingIOError, OSError):
            if self._write >= 0:
                os.write(self._write, b"x")

    def _run(self) -> None:
        while not self._stopped:
            try:
                db = connect.connect(self._place, patience=connect.REPLY_SECONDS)
            except (psycopg.Error, TampuError) as error:
                log.debug("the bell is not heard for a moment: %s", error)
                self._sleep(_RETRY_SECONDS)
                if not self._stopped:
                    self._heard()
                continue
            try:
                self._serve(db)
            except psycopg.Error as error:
                log.debug("the bell's connection was lost: %s", error)
                self._sleep(_APART_SECONDS)
            finally:
                db.connection.close()

    def _serve(self, db: Db) -> None:
        """Until the connection is lost or we are closed."""
        listens = db.ours
        if listens:
            with db.together():
                db.say(b"LISTEN %s" % self._channel.encode())
                db.say(b"SET synchronous_commit = off")
                db.say(b"SET application_name = '%s'" % self._channel.encode())
            self._heard()  # what was rung while nobody listened
        rung = counted = 0.0
        others_listen = True
        while True:
            if self._due and (self._stopped or time.monotonic() - rung >= _APART_SECONDS):
                self._due = False
                rung = time.monotonic()
                known = rung - counted <= _COUNT_SECONDS  # one that comes meanwhile looks by itself when it comes
                if others_listen:
                    db.rows("notify", self._channel, self._me)  # before counting: somebody may wait for it
                if not known:
                    counted, before = rung, others_listen
                    others_listen = not listens or db.value("count_listeners", self._channel) > 0
                    if others_listen and not before:
                        db.rows("notify", self._channel, self._me)
            if self._stopped:
                return
            left = max(0.0, rung + _APART_SECONDS - time.monotonic())
            timeout = left if self._due else None if listens else _LOOK_SECONDS
            others = self._wait(db.connection, timeout)
            if (others or not listens) and not self._heard():
                # Nobody waits here: hearing it now and then is enough.
                self._sleep(_RELAXED_SECONDS if listens else _LOOK_SECONDS)

    def _wait(self, connection: psycopg.Connection[object], timeout: float | None) -> bool:
        """Sleep until somebody rings, here or elsewhere; whether it was elsewhere."""
        ready = wait([self._read, connection.fileno()], timeout)
        if self._read in ready:
            os.read(self._read, 4096)
        if connection.fileno() not in ready:
            return False
        return any(note.payload != self._me for note in connection.notifies(timeout=0))

    def _sleep(self, seconds: float) -> None:
        if wait([self._read], seconds):
            os.read(self._read, 4096)

    def close(self) -> None:
        """Ring what is due, and stop."""
        self._stopped = True
        self._poke()
        if threading.current_thread() is not self._thread:
            self._thread.join()
        with self._closing:
            for handle in (self._read, self._write):
                os.close(handle)
            self._read = self._write = -1
