"""Wake-ups between processes: NOTIFY after commits, at a limited rate.

A NOTIFY inside a commit locks the whole database until it is on disk. So each engine has a thread that sends NOTIFY
after commits, on its own connection, and listens there. Without that connection, or behind a pooler, which cannot
listen, it polls instead. Wake-ups only save time: every process also checks once a second.
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
"""Between two NOTIFYs: commits in between are announced by one."""
_RELAXED_SECONDS = 0.025
_POLL_SECONDS = 0.25
_RETRY_SECONDS = 1.0
_COUNT_SECONDS = 0.5
"""Between two checks whether any other process listens."""


class Wakeup:
    def __init__(self, place: connect.Target, on_remote_change: Callable[[], bool]) -> None:
        self._place = place
        self._on_remote_change = on_remote_change
        self._instance = secrets.token_hex(8)
        self._channel = f"tampu_{place.schema}"
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)
        self._pending = False
        self._stopped = False
        self._closing = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="tampu-wakeup", daemon=True)
        self._thread.start()

    def notify(self) -> None:
        """Have the thread send a NOTIFY."""
        if not self._pending:
            self._pending = True
            self._interrupt()

    def _interrupt(self) -> None:
        with self._closing, contextlib.suppress(BlockingIOError, OSError):
            if self._write >= 0:
                os.write(self._write, b"x")

    def _run(self) -> None:
        while not self._stopped:
            try:
                db = connect.connect(self._place, patience=connect.REPLY_SECONDS)
            except (psycopg.Error, TampuError) as error:
                log.debug("wake-ups are off, retrying in %s s: %s", _RETRY_SECONDS, error)
                self._sleep(_RETRY_SECONDS)
                if not self._stopped:
                    self._on_remote_change()
                continue
            try:
                self._serve(db)
            except psycopg.Error as error:
                log.debug("the connection for wake-ups was lost, reconnecting: %s", error)
                self._sleep(_APART_SECONDS)
            finally:
                db.connection.close()

    def _serve(self, db: Db) -> None:
        """Send and receive wake-ups until the connection is lost or `close` is called."""
        listens = db.ours
        if listens:
            with db.together():
                db.command(b"LISTEN %s" % self._channel.encode())
                db.command(b"SET synchronous_commit = off")
                db.command(b"SET application_name = '%s'" % self._channel.encode())
            self._on_remote_change()  # a wake-up may have been sent before we listened
        notified = counted = 0.0
        others_listen = True
        while True:
            if self._pending and (self._stopped or time.monotonic() - notified >= _APART_SECONDS):
                self._pending = False
                notified = time.monotonic()
                known = notified - counted <= _COUNT_SECONDS  # a process that starts to listen checks by itself at once
                if others_listen:
                    db.rows("notify", self._channel, self._instance)  # before counting: a claim may be waiting for it
                if not known:
                    counted, before = notified, others_listen
                    others_listen = not listens or db.value("count_listeners", self._channel) > 0
                    if others_listen and not before:
                        db.rows("notify", self._channel, self._instance)
            if self._stopped:
                return
            left = max(0.0, notified + _APART_SECONDS - time.monotonic())
            timeout = left if self._pending else None if listens else _POLL_SECONDS
            others = self._wait(db.connection, timeout)
            if (others or not listens) and not self._on_remote_change():
                # No claim waits in this process: checking now and then is enough.
                self._sleep(_RELAXED_SECONDS if listens else _POLL_SECONDS)

    def _wait(self, connection: psycopg.Connection[object], timeout: float | None) -> bool:
        """Sleep until `notify` is called here or another process sends a NOTIFY; True in the second case."""
        ready = wait([self._read, connection.fileno()], timeout)
        if self._read in ready:
            os.read(self._read, 4096)
        if connection.fileno() not in ready:
            return False
        return any(note.payload != self._instance for note in connection.notifies(timeout=0))

    def _sleep(self, seconds: float) -> None:
        if wait([self._read], seconds):
            os.read(self._read, 4096)

    def close(self) -> None:
        """Send a pending NOTIFY, then stop."""
        self._stopped = True
        self._interrupt()
        if threading.current_thread() is not self._thread:
            self._thread.join()
        with self._closing:
            for handle in (self._read, self._write):
                os.close(handle)
            self._read = self._write = -1
