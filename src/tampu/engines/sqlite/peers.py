"""Between processes that share a file: a lock for writers, wake-ups, and the leader whose maintenance works.

They use two small files beside the database, ``-gate`` and ``-keeper``. Locks on them end with the process, so a kill
leaves nothing behind. Writers wait for each other in short steps (SQLite's own busy handler sleeps up to
100 ms), and commits and checkpoints never overlap. Writing to the lock file is the wake-up: waiting processes sleep in
inotify and cost nothing. Without inotify they look at the file every 25 ms.
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
_POLL_SECONDS = 0.025


_all: weakref.WeakSet[Peers] = weakref.WeakSet()


def _after_fork() -> None:
    """A lock lasts while any process has its file open. A child must not keep the locks of a parent that dies."""
    for peers in list(_all):
        peers.abandon()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class Peers:
    """The lock files of one database file, for one open engine."""

    def __init__(self, path: str, patience: float) -> None:
        self._path = path
        self._patience = patience
        self._lock_file = _open(path, "gate")
        self._leader: int | None = None
        self._leading = False
        self.entered = False
        """True while this process is the writer."""
        self._wakeups: _Listener | None = None
        self._closing = threading.Lock()
        _all.add(self)

    @contextlib.contextmanager
    def write_lock(self, patience: float | None = None) -> Iterator[None]:
        """One writer at a time, over all processes."""
        if fcntl is None:  # pragma: no cover - see the import
            yield
            return
        try:
            # Inside the try: an interrupt may come right after entering.
            self._enter(time.monotonic() + (self._patience if patience is None else patience))
            self.entered = True
            yield
        finally:
            self.entered = False
            if self._lock_file >= 0:  # closed in a child that was forked in here: the lock is the parent's
                fcntl.flock(self._lock_file, fcntl.LOCK_UN)

    def _enter(self, give_up: float) -> None:
        pause = 0.00005
        while True:
            try:
                fcntl.flock(self._lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > give_up:
                    raise Unavailable(
                        f"another process has been writing to {self._path} for {self._patience:.0f} s",
                        hint="look for a stopped process or a long transaction on the file",
                    ) from None
                time.sleep(pause)
                pause = min(pause * 1.5, 0.002)
            else:
                return

    def notify(self) -> None:
        """Wake other processes. It may fail (on a full disk): they also poll once a second."""
        with self._closing, contextlib.suppress(OSError):
            os.pwrite(self._lock_file, b"\n", 0)  # -1 when closed: the old number may be another file by now

    def listen(self, on_change: Callable[[], bool]) -> None:
        self._wakeups = _Listener(f"{self._path}-gate", on_change)

    def lead(self) -> bool:
        """Become the leader if there is none. True while this process is the leader."""
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
        if self._wakeups is not None:
            self._wakeups.stop()
        with self._closing:
            self._close_files()

    def abandon(self) -> None:
        """In a child after a fork: close the parent's files. Its threads do not exist here."""
        if self._wakeups is not None:
            self._wakeups.close_files()
        self._close_files()

    def _close_files(self) -> None:
        for handle in (self._lock_file, self._leader):
            if handle is not None and handle >= 0:
                os.close(handle)
        self._lock_file, self._leader = -1, None


def _open(path: str, name: str) -> int:
    """Open a lock file. It gets the mode and owner of the database, as SQLite's own files do: whoever may write to the
    database may use it."""
    place = f"{path}-{name}"
    try:
        try:
            return os.open(place, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            handle = os.open(place, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _mode(path))
    except OSError as error:
        raise Unavailable(
            f"{place}: {error.strerror}", hint="check the owner and mode of the file and its folder"
        ) from error
    with contextlib.suppress(OSError):  # there is no database yet, or another user owns it
        like = Path(path).stat()
        os.fchmod(handle, like.st_mode & 0o666)
        os.fchown(handle, like.st_uid, like.st_gid)
    return handle


def _mode(path: str) -> int:
    """The mode of the database; without one, only the owner may use what is created."""
    try:
        return Path(path).stat().st_mode & 0o666
    except OSError:
        return 0o600


class _Listener:
    """A thread that waits until the file is modified."""

    def __init__(self, path: str, on_change: Callable[[], bool]) -> None:
        self._path = path
        self._on_change = on_change
        self._wake_read, self._wake_write = os.pipe()
        self._stopped = threading.Event()
        self._watch = _inotify(path)
        self._open = tuple(h for h in (self._wake_read, self._wake_write, self._watch) if h is not None)
        work = self._poll if self._watch is None else self._sleep
        self._thread = threading.Thread(target=work, name="tampu-wakeup", daemon=True)
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
                has_waiters = self._on_change()
                # Under load every commit is a wake-up. Handling one now and then is enough.
                self._stopped.wait(_QUIET_SECONDS if has_waiters else _RELAXED_SECONDS)

    def _poll(self) -> None:
        seen = Path(self._path).stat().st_mtime_ns
        while not self._stopped.wait(_POLL_SECONDS):
            now = Path(self._path).stat().st_mtime_ns
            if now != seen:
                seen = now
                self._on_change()

    def stop(self) -> None:
        self._stopped.set()
        os.write(self._wake_write, b"x")
        if threading.current_thread() is not self._thread:
            self._thread.join()
        self.close_files()

    def close_files(self) -> None:
        """Only once: the numbers are soon reused for other files."""
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
