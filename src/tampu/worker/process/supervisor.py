"""Runs several worker processes: starts them, restarts one that dies, restarts all when code changes, stops all."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

from tampu.worker.process.run import CLEAN, FORCED, PARENT, SNAPSHOTS

log = logging.getLogger("tampu.worker")
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0
_STABLE_SECONDS = 10.0
"""A worker that ran this long is restarted at once."""
_CHECK_SECONDS = 0.5
BAD_INPUT = 2
_HELD_NOTHING = (CLEAN, -signal.SIGTERM)
"""Exit codes of workers that left nothing unsettled. One that SIGTERM killed had not started to claim."""


class SnapshotReader(Protocol):
    """Reads snapshots of a worker; see `tampu.worker.process.live`."""

    snapshot: Any

    def start(self, pipe: int) -> threading.Thread: ...


class _WorkerSlot:
    """One of the workers: the current process, and when to start the next."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None
        self.began = 0.0
        self.again_at = 0.0
        self.pause = _FIRST_PAUSE
        self.reader: SnapshotReader | None = None


class Supervisor:
    def __init__(
        self,
        command: Sequence[str],
        count: int,
        changed: Callable[[], bool] | None = None,
        make_reader: Callable[[], SnapshotReader] | None = None,
    ) -> None:
        self._command = list(command)
        self._slots = [_WorkerSlot() for _ in range(count)]
        self._changed = changed
        self._make_reader = make_reader
        """Creates the reader of a worker's snapshots; None without a live view."""
        self._readers: list[threading.Thread] = []
        self._asked = 0
        self._signalled: set[int] = set()
        """Processes that got the signal."""
        self._wake = threading.Event()

    def run(self) -> int:
        """Supervise until a signal. Returns the exit code."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        signal.signal(signal.SIGCHLD, lambda *_: self._wake.set())
        while not self._asked:
            for slot in self._slots:
                if not self._asked:
                    self._check(slot)
            codes = [slot.process.poll() for slot in self._slots if slot.process is not None]
            if codes and all(code == BAD_INPUT for code in codes):
                log.error("no worker can start")
                return BAD_INPUT
            if self._changed is not None and self._changed():
                log.warning("the code has changed, restarting")
                self._signal_all(signal.SIGTERM)
                self._wait()
            self._wake.wait(_CHECK_SECONDS)
            self._wake.clear()
        self._signal_all(signal.SIGTERM, self._signalled)  # those that were just starting
        ended = self._wait()
        for reader in self._readers:
            reader.join()
        return CLEAN if all(code in _HELD_NOTHING for code in ended) else FORCED

    @property
    def pids(self) -> list[int]:
        return [slot.process.pid for slot in self._slots if slot.process is not None and slot.process.poll() is None]

    def _check(self, slot: _WorkerSlot) -> None:
        now = time.monotonic()
        if slot.process is not None and slot.process.poll() is None:
            return
        if slot.process is not None and not slot.again_at:
            lived = now - slot.began
            if slot.process.returncode == CLEAN:  # it reached a limit, as configured
                lived = _STABLE_SECONDS * 2
            slot.pause = _FIRST_PAUSE if lived > _STABLE_SECONDS else min(_LONGEST_PAUSE, slot.pause * 2)
            slot.again_at = now + (0 if lived > _STABLE_SECONDS else slot.pause)
            log.warning("worker %d ended with %s, starting another", slot.process.pid, slot.process.returncode)
        if now >= slot.again_at:
            # In a new session: Ctrl-C at the terminal reaches it only through this process, once.
            slot.process = self._start(slot)
            slot.began, slot.again_at = now, 0.0

    def _start(self, slot: _WorkerSlot) -> subprocess.Popen[bytes]:
        env = {**os.environ, PARENT: str(os.getpid())}
        if self._make_reader is None:
            return subprocess.Popen(self._command, env=env, start_new_session=True)
        ours, theirs = os.pipe()
        try:
            started = subprocess.Popen(
                self._command, env={**env, SNAPSHOTS: str(theirs)}, pass_fds=(theirs,), start_new_session=True
            )
        except BaseException:
            os.close(ours)
            raise
        finally:
            os.close(theirs)
        slot.reader = self._make_reader()
        self._readers = [reader for reader in self._readers if reader.is_alive()]
        self._readers.append(slot.reader.start(ours))
        return started

    def snapshots(self) -> list[Any]:
        """The latest snapshot of each worker."""
        found = [slot.reader.snapshot for slot in self._slots if slot.reader is not None]
        return [one for one in found if one is not None]

    def _stop(self, number: int, _frame: FrameType | None) -> None:
        self._asked += 1
        self._signalled |= self._signal_all(number)
        self._wake.set()

    def _signal_all(self, number: int, but: Collection[int] = ()) -> set[int]:
        signalled = {pid for pid in self.pids if pid not in but}
        for pid in signalled:
            os.kill(pid, number)
        return signalled

    def _wait(self) -> list[int]:
        return [slot.process.wait() for slot in self._slots if slot.process is not None]


def changes(folder: Path) -> Callable[[], bool]:
    """A function that returns True if a Python file below the folder has changed since its last call."""
    seen = dict(_times(folder))

    def changed() -> bool:
        nonlocal seen
        before, seen = seen, dict(_times(folder))
        return before != seen

    return changed


def _times(folder: Path) -> Iterator[tuple[str, int]]:
    for root, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith((".", "__pycache__", "node_modules"))]
        for name in files:
            if name.endswith(".py"):
                path = os.path.join(root, name)  # noqa: PTH118 - thousands of files, twice a second
                try:
                    yield path, os.stat(path).st_mtime_ns  # noqa: PTH116 - as above
                except FileNotFoundError:
                    continue  # deleted meanwhile
