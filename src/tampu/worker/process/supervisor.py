"""Several worker processes: started, started again when one dies or code changes, stopped together."""

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

from tampu.worker.process.run import CLEAN, FORCED, PARENT, PICTURES

log = logging.getLogger("tampu.worker")
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0
_GOOD_SECONDS = 10.0
"""Who lived so long was not broken from the start."""
_LOOK_SECONDS = 0.5
BAD_INPUT = 2
_HELD_NOTHING = (CLEAN, -signal.SIGTERM)
"""Exit codes of who left nothing behind: a worker that the signal itself has ended had not begun to claim."""


class Frame(Protocol):
    """What takes pictures of a worker; see `tampu.worker.process.live`."""

    picture: Any

    def hang(self, pipe: int) -> threading.Thread: ...


class _WorkerSlot:
    """One of the workers, whoever sits there now."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None
        self.began = 0.0
        self.again_at = 0.0
        self.pause = _FIRST_PAUSE
        self.frame: Frame | None = None


class Supervisor:
    def __init__(
        self,
        command: Sequence[str],
        count: int,
        changed: Callable[[], bool] | None = None,
        frame: Callable[[], Frame] | None = None,
    ) -> None:
        self._command = list(command)
        self._slots = [_WorkerSlot() for _ in range(count)]
        self._changed = changed
        self._frame = frame
        """Makes what takes the pictures that a worker sends, if somebody wants to see them."""
        self._readers: list[threading.Thread] = []
        self._asked = 0
        self._told: set[int] = set()
        """The processes that know of it."""
        self._wake = threading.Event()

    def run(self) -> int:
        """Until a signal; the exit code."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        signal.signal(signal.SIGCHLD, lambda *_: self._wake.set())
        while not self._asked:
            for slot in self._slots:
                if not self._asked:
                    self._look_after(slot)
            codes = [slot.process.poll() for slot in self._slots if slot.process is not None]
            if codes and all(code == BAD_INPUT for code in codes):
                log.error("the workers can not start")
                return BAD_INPUT
            if self._changed is not None and self._changed():
                log.warning("the code has changed, starting anew")
                self._tell(signal.SIGTERM)
                self._wait()
            self._wake.wait(_LOOK_SECONDS)
            self._wake.clear()
        self._tell(signal.SIGTERM, self._told)  # those that were being started when the signal came
        ended = self._wait()
        for reader in self._readers:
            reader.join()
        return CLEAN if all(code in _HELD_NOTHING for code in ended) else FORCED

    @property
    def pids(self) -> list[int]:
        return [slot.process.pid for slot in self._slots if slot.process is not None and slot.process.poll() is None]

    def _look_after(self, slot: _WorkerSlot) -> None:
        now = time.monotonic()
        if slot.process is not None and slot.process.poll() is None:
            return
        if slot.process is not None and not slot.again_at:
            lived = now - slot.began
            if slot.process.returncode == CLEAN:  # it went as far as it was told to, and is no worse for it
                lived = _GOOD_SECONDS * 2
            slot.pause = _FIRST_PAUSE if lived > _GOOD_SECONDS else min(_LONGEST_PAUSE, slot.pause * 2)
            slot.again_at = now + (0 if lived > _GOOD_SECONDS else slot.pause)
            log.warning("worker %d ended with %s, starting another", slot.process.pid, slot.process.returncode)
        if now >= slot.again_at:
            # In a session of its own: a Ctrl-C at the terminal comes to it through here, and only once.
            slot.process = self._start(slot)
            slot.began, slot.again_at = now, 0.0

    def _start(self, slot: _WorkerSlot) -> subprocess.Popen[bytes]:
        env = {**os.environ, PARENT: str(os.getpid())}
        if self._frame is None:
            return subprocess.Popen(self._command, env=env, start_new_session=True)
        ours, theirs = os.pipe()
        try:
            started = subprocess.Popen(
                self._command, env={**env, PICTURES: str(theirs)}, pass_fds=(theirs,), start_new_session=True
            )
        except BaseException:
            os.close(ours)
            raise
        finally:
            os.close(theirs)
        slot.frame = self._frame()
        self._readers = [reader for reader in self._readers if reader.is_alive()]
        self._readers.append(slot.frame.hang(ours))
        return started

    def pictures(self) -> list[Any]:
        """The last ones that the workers sent."""
        found = [slot.frame.picture for slot in self._slots if slot.frame is not None]
        return [one for one in found if one is not None]

    def _stop(self, number: int, _frame: FrameType | None) -> None:
        self._asked += 1
        self._told |= self._tell(number)
        self._wake.set()

    def _tell(self, number: int, but: Collection[int] = ()) -> set[int]:
        told = {pid for pid in self.pids if pid not in but}
        for pid in told:
            os.kill(pid, number)
        return told

    def _wait(self) -> list[int]:
        return [slot.process.wait() for slot in self._slots if slot.process is not None]


def changes(folder: Path) -> Callable[[], bool]:
    """Has a Python file below the folder changed since the last time?"""
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
                    continue  # meanwhile
