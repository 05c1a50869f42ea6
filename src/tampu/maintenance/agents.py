"""What the leader's tasks have done, for users, and what users want of them (`tampu.broker.agents`).

Requests are read when a document has changed. A report is stored when a task has done something, at most every few
seconds, and when a run was asked for: an idle store writes nothing.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable
from typing import Protocol, TypeVar

import msgspec

from tampu.broker import validate
from tampu.broker.agents import stored
from tampu.broker.agents.stored import Control, Report
from tampu.broker.core import Core
from tampu.engines.port import PollStatus
from tampu.model.errors import TampuError

R = TypeVar("R")
_READ_SECONDS = 0.5
"""Requests are read again at most this often, though documents change with each page of a follower."""
_STORE_SECONDS = 10.0
_ERROR_CHARACTERS = 500


class Task(Protocol):
    runs: int
    """How often it had something to do."""
    done: int
    """How much it has done."""


class Agents:
    """The agents of this process. The supervisor calls it from its thread; `reports` may be called from any."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._leader = f"{socket.gethostname()}:{os.getpid()}"
        self._controls: dict[str, Control] = {}
        self._revision: int | None = None
        self._read_at = 0.0
        self._lock = threading.Lock()
        self._reports: dict[str, Report] | None = None
        """None: those of earlier leaders were not read yet."""
        self._unstored: set[str] = set()
        self._store_at = 0.0
        self._now = 0

    def forget(self) -> None:
        """Another process leads: its reports count."""
        self._revision = None
        with self._lock:
            self._reports = None
            self._unstored.clear()

    def refresh(self, status: PollStatus) -> None:
        """Read what users want, if a document has changed. Store reports that are due."""
        self._now = status.now_us
        if status.revision != self._revision and (
            self._revision is None or time.monotonic() - self._read_at >= _READ_SECONDS
        ):
            self._read_at = time.monotonic()
            self._controls = stored.controls(self._core.engine)
            self._revision = status.revision
        if self._unstored and time.monotonic() >= self._store_at:
            self._store(*self._unstored)

    def paused(self, name: str) -> bool:
        control = self._controls.get(name)
        return control is not None and control.paused

    def asked(self, name: str) -> bool:
        """True if users want it to run now."""
        control = self._controls.get(name)
        if control is None or control.paused or not control.asked_us:
            return False
        return self.reports().get(name, Report()).ran_us < control.asked_us

    def run(self, name: str, task: Task, call: Callable[[], R]) -> R | None:
        """Run a task and note what it did; None if it is paused."""
        if self.paused(name):
            return None
        asked, runs, done = self.asked(name), task.runs, task.done
        try:
            reply = call()
        except Exception as error:
            with contextlib.suppress(TampuError):  # the store may be what failed
                text = validate.clip(f"{type(error).__name__}: {error}", _ERROR_CHARACTERS)
                self._note(name, lambda old: msgspec.structs.replace(old, error=text, error_us=self._now))
            raise
        if asked or task.runs != runs:
            more = task.done - done
            now = max(self._now, self._controls.get(name, Control()).asked_us)
            self._note(name, lambda old: Report(self._leader, now, old.done + more))
        if asked:
            self._store(name)
        return reply

    def _note(self, name: str, change: Callable[[Report], Report]) -> None:
        reports = self._known()
        with self._lock:
            reports[name] = change(reports.get(name, Report()))
            self._unstored.add(name)

    def _known(self) -> dict[str, Report]:
        with self._lock:
            if self._reports is None:
                self._reports = stored.reports(self._core.engine)
            return self._reports

    def reports(self) -> dict[str, Report]:
        """Of all tasks that have run, also in earlier leaders."""
        known = self._known()
        with self._lock:
            return dict(known)

    def _store(self, *names: str) -> None:
        self._store_at = time.monotonic() + _STORE_SECONDS
        reports = self.reports()
        for name in names:
            self._core.do(stored.saving(name, reports[name]))
        self._unstored.difference_update(names)
