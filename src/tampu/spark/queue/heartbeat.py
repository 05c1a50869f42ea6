"""The heartbeat of a stream's source, and a check whether another process is still alive.

Spark runs the source in its own process, a child of the driver. When the driver dies, that process may live on for a
while and must not keep the driver's leases. It notices because its parent process has changed.

A missing heartbeat shows only after a while that a driver is gone. On the same machine the system knows at once.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path

from tampu.model.errors import TampuError

log = logging.getLogger("tampu.spark")


def this_process() -> str:
    """A unique name of this process on its machine, until the next reboot; "" if it cannot be determined."""
    space = _space()
    started = _started(os.getpid())
    return f"{space}/{os.getpid()}/{started}" if space and started else ""


def surely_ended(process: str) -> bool:
    """True if a process that `this_process` named has certainly ended. False for processes of other machines."""
    space, _, rest = process.partition("/")
    pid, _, started = rest.partition("/")
    return bool(space) and space == _space() and _started(int(pid)) != started


def _space() -> str:
    """The boot of this machine, and the namespace of process ids."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}:{Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


def _started(pid: int) -> str | None:
    """Start time of a running process; None if it has ended."""
    try:
        state, *numbers = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if state in "ZX" else numbers[18]


class Heartbeat:
    def __init__(
        self,
        beat: Callable[[], None],
        every: float,
        *,
        orphaned: Callable[[], None],
        last: type[TampuError],
        parent: Callable[[], int] = os.getppid,
    ) -> None:
        self._beat = beat
        self._every = every
        self._orphaned = orphaned
        self._last = last
        self._parent = parent
        self._first_parent = parent()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tampu-heartbeat", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(self._every + 10)

    def _run(self) -> None:
        while not self._stopped.wait(self._every):
            try:
                if self._parent() != self._first_parent:
                    self._orphaned()
                    return
                self._beat()
            except self._last as error:
                log.warning("heartbeat stopped: %s", error)
                return
            except TampuError as error:  # the next one may succeed; if none does, the ownership expires
                log.warning("heartbeat failed, retrying: %s", error)
