"""Who is alive: a thread beside the source of a stream that says so, and a look at a process that said so.

Spark runs the source in a process of its own, a child of the driver. When the driver dies the process may live on for
a while, and must not keep the driver's leases: its parent has changed then.

A beat that stops only tells after a while that a driver is gone. On one machine the system knows at once.
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
    """Names this process among all of its machine's, until the machine starts anew; "" where that is not known."""
    space = _space()
    started = _started(os.getpid())
    return f"{space}/{os.getpid()}/{started}" if space and started else ""


def surely_ended(process: str) -> bool:
    """Whether a process that `this_process` named is known to be gone. False for those of other machines."""
    space, _, rest = process.partition("/")
    pid, _, started = rest.partition("/")
    return bool(space) and space == _space() and _started(int(pid)) != started


def _space() -> str:
    """This start of the machine, and the namespace of process numbers."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}:{Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


def _started(pid: int) -> str | None:
    """When a process that runs was started; None for one that has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else fields[19]


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
        self._born_of = parent()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tampu-heartbeat", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(self._every + 10)

    def _run(self) -> None:
        while not self._over.wait(self._every):
            try:
                if self._parent() != self._born_of:
                    self._orphaned()
                    return
                self._beat()
            except self._last as error:
                log.warning("the heartbeat ends: %s", error)
                return
            except TampuError as error:  # the next beat may succeed; if none does, the ownership lapses by itself
                log.warning("a heartbeat failed: %s", error)
