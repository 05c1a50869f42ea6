"""Between processes that share a file: a gate for writers, a bell for wake-ups, a seat for the keeper.

All three are small companion files. Locks on them belong to the open file and end with the process, so nothing is
left behind by a kill. The gate lets writers wait for each other in short steps (SQLite's own busy handler sleeps up
to 100 ms) and keeps checkpoints and commits apart. The bell is the gate file's modification: waiting processes sleep
in inotify and cost nothing; where there is no inotify they look every 25 ms while somebody waits.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path

from tampu.model.errors import Unavailable

try:
    import fcntl
except ImportError:  # pragma: no cover - no flock on this system: SQLite's own locks serve alone
    fcntl = None  # type: ignore[assignment]  # the module is absent, every use is guarded

_IN_MODIFY = 0x2
_QUIET_SECONDS = 0.002
_RELAXED_SECONDS = 0.025
_LOOK_SECONDS = 0.025


_all: weakref.WeakSet[Peers] = weakref.WeakSet()


def _after_fork() -> None:
    """A lock lives as long as anybody has its file open: a child must not keep the locks of a parent that dies."""
    for companions in list(_all):
        companions.abandon()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class Peers:
    """The companion files of one database file, for one open engine."""

    def __init__(self, path: str, patience: float) -> None:
        self._path = path
        self._patience = patience
        self._gate = _open(path, "gate")
        self._leader: int | None = None
        self._leading = False
        self.entered = False
        """Are we the writer now?"""
        self._ears: _Listener | None = None
        self._closing = threading.Lock()
        _all.add(self)

    @contextlib.contextmanager
    def gate(self, patience: float | None = None) -> Iterator[None]:
        """One writer at a time, over all processes."""
        if fcntl is None:  # pragma: no cover - see the import
            yield
            return
        try:
            # Inside: an interrupt may come when it has just entered.
            self._enter(time.monotonic() + (self._patience if patience is None else patience))
            self.entered = True
            yield
        finally:
            self.entered = False
            if self._gate >= 0:  # the lock is the parent's in a child that was forked in here
                fcntl.flock(self._gate, fcntl.LOCK_UN)

    def _enter(self, give_up: float) -> None:
        pause = 0.00005
        while True:
            try:
                fcntl.flock(self._gate, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > give_up:
                    raise Unavailable(
                        f"another process has kept {self._path} for {self._patience:.0f} s",
                        hint="look for a stopped process, or a long transaction, on the file",
                    ) from None
                time.sleep(pause)
                pause = min(pause * 1.5, 0.002)
            else:
                return

    def notify(self) -> None:
        """Wake the others. It may fail (on a full disk): they also look by themselves, once a second."""
        with self._closing, contextlib.suppress(OSError):
            os.pwrite(self._gate, b"\n", 0)  # -1 when closed: the number may be another file's by now

    def listen(self, heard: Callable[[], bool]) -> None:
        self._ears = _Listener(f"{self._path}-gate", heard)

    def lead(self) -> bool:
        """Take the keeper's seat if it is free; true while it is ours."""
        if fcntl is None or self._leading:
            return True
        if self._leader is None:
            self._leader = _open(self._path, "keeper")
        try:
            fcntl.flock(self._leader, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        self._leading = True
        return True

    def close(self) -> None:
        if self._ears is not None:
            self._ears.stop()
        with self._closing:
            self._close_files()

    def abandon(self) -> None:
        """In a child after a fork: let go of what belongs to the parent, without a word to its threads."""
        if self._ears is not None:
            self._ears.close_files()
        self._close_files()

    def _close_files(self) -> None:
        for handle in (self._gate, self._leader):
            if handle is not None and handle >= 0:
                os.close(handle)
        self._gate, self._leader = -1, None


def _open(path: str, name: str) -> int:
    """A companion file. Whoever may write to the database may use it: it is made with the mode and owner of that, as
    SQLite makes its own."""
    place = f"{path}-{name}"
    try:
        try:
            return os.open(place, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            handle = os.open(place, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise Unavailable(
            f"{place}: {error.strerror}", hint="check the owner and mode of the file and its folder"
        ) from error
    with contextlib.suppress(OSError):  # there is no database yet, or it is somebody else's
        like = Path(path).stat()
        os.fchmod(handle, like.st_mode & 0o666)
        os.fchown(handle, like.st_uid, like.st_gid)
    return handle


class _Listener:
    """A thread that sleeps until the file is modified."""

    def __init__(self, path: str, heard: Callable[[], bool]) -> None:
        self._path = path
        self._heard = heard
        self._wake_read, self._wake_write = os.pipe()
        self._stopped = threading.Event()
        self._watch = _inotify(path)
        self._open = tuple(h for h in (self._wake_read, self._wake_write, self._watch) if h is not None)
        work = self._look if self._watch is None else self._sleep
        self._thread = threading.Thread(target=work, name="tampu-bell", daemon=True)
        self._thread.start()

    def _sleep(self) -> None:
        assert self._watch is not None
        waiting = select.poll()
        waiting.register(self._watch, select.POLLIN)
        waiting.register(self._wake_read, select.POLLIN)
        while not self._stopped.is_set():
            ready = waiting.poll()
            if self._stopped.is_set():
                break
            if any(handle == self._watch for handle, _ in ready):
                os.read(self._watch, 65536)
                anxious = self._heard()
                # Under load the bell rings with every commit; hearing it now and then is enough.
                self._stopped.wait(_QUIET_SECONDS if anxious else _RELAXED_SECONDS)

    def _look(self) -> None:
        seen = Path(self._path).stat().st_mtime_ns
        while not self._stopped.wait(_LOOK_SECONDS):
            now = Path(self._path).stat().st_mtime_ns
            if now != seen:
                seen = now
                self._heard()

    def stop(self) -> None:
        self._stopped.set()
        os.write(self._wake_write, b"x")
        if threading.current_thread() is not self._thread:
            self._thread.join()
        self.close_files()

    def close_files(self) -> None:
        """Once: the numbers are soon those of other files."""
        handles, self._open = self._open, ()
        for handle in handles:
            os.close(handle)


def _inotify(path: str) -> int | None:
    """A descriptor that becomes readable when the file is modified; None where the system has no inotify."""
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "inotify_init1"):
        return None
    handle: int = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    if handle < 0:
        return None
    if libc.inotify_add_watch(handle, os.fsencode(path), _IN_MODIFY) < 0:
        os.close(handle)
        return None
    return handle
