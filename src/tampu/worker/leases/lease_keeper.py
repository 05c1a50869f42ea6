"""The worker's side of the lease keeper, which extends leases while their messages are worked on.

`LeaseKeeperProcess` starts a separate process with its own connection: no task can stop it by blocking the interpreter
or the event loop, or by using all processor time. `LeaseKeeperThread` is a thread, for stores that no other process can
open.

The process learns of a lease before its task starts, and ends with the worker. It does not extend leases of a worker
that was stopped (SIGSTOP), or whose event loop has not run for longer than any of its tasks may take.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from tampu.broker.store import Store
from tampu.model.errors import Unavailable
from tampu.worker.current import CANCELLED, LOST
from tampu.worker.leases.lease_extender import LeaseExtender

log = logging.getLogger("tampu.worker")
OnStop = Callable[[Sequence[str], str], None]
"""Called with receipts whose tasks should stop, and the reason."""
HEAD = struct.Struct(">I")
_START_SECONDS = 120.0
_END_SECONDS = 5.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0
_STABLE_SECONDS = 10.0
"""A process that ran this long is restarted at once if it dies."""


class LeaseKeeperThread:
    """Extends leases from a thread of this process."""

    def __init__(self, store: Store, lease: float, on_stop: OnStop) -> None:
        self._inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        extender = LeaseExtender(lease, lambda: store, lambda report: _handle(report, on_stop))
        self._thread = threading.Thread(
            target=extender.serve, args=(self._inbox,), name="tampu-lease-keeper", daemon=True
        )
        self._thread.start()

    def add(self, receipts: Sequence[str]) -> None:
        self._inbox.put({"add": receipts})

    def remove(self, receipts: Sequence[str]) -> None:
        self._inbox.put({"remove": receipts})

    def beat(self) -> None:
        """Not needed: the thread runs only if this process does."""

    def close(self) -> None:
        self._inbox.put(None)
        self._thread.join(_END_SECONDS)  # it may wait for a store that does not answer


def _handle(report: dict[str, Any], on_stop: OnStop) -> None:
    """Handle what a `LeaseExtender` reports."""
    on_stop(report.get("cancelled", ()), CANCELLED)
    on_stop(report.get("lost", ()), LOST)
    if "warn" in report:
        log.warning("%s", report["warn"])


class LeaseKeeperProcess:
    """Extends leases from a separate process, which is restarted if it dies."""

    def __init__(self, opening: dict[str, Any], lease: float, patience: float | None, on_stop: OnStop) -> None:
        self._hello = {**opening, "lease": lease, "patience": patience, "pid": os.getpid()}
        self._on_stop = on_stop
        self._lock = threading.Lock()
        self._held: set[str] = set()
        self._ended = threading.Event()
        self._next_pause = 0.0
        self._up = threading.Event()
        self._start()
        if not self._up.wait(_START_SECONDS):  # leases may be shorter than its start takes
            self.close()
            raise Unavailable("the lease keeper process does not start")

    def _start(self) -> None:
        self._began = time.monotonic()
        ours, theirs = socket.socketpair()
        with theirs:
            # Nothing is passed as an argument: the url may contain a password.
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tampu.worker.leases.lease_keeper_process"],
                stdin=theirs.fileno(), stdout=subprocess.DEVNULL,
                start_new_session=True,  # a Ctrl-C at the terminal is for the worker
            )  # fmt: skip
        self._socket = ours
        self._send(self._hello)
        threading.Thread(target=self._read, args=(ours,), name="tampu-lease-keeper", daemon=True).start()

    def _send(self, message: Any) -> None:
        send(self._socket, message)  # if it died, `_read` restarts it and sends everything again

    def add(self, receipts: Sequence[str]) -> None:
        with self._lock:
            self._held.update(receipts)
            self._send({"add": receipts})

    def remove(self, receipts: Sequence[str]) -> None:
        with self._lock:
            self._held.difference_update(receipts)
            self._send({"remove": receipts})

    def beat(self) -> None:
        """Heartbeat: the event loop of this worker runs."""
        with self._lock:
            self._send({"beat": True})

    @property
    def pid(self) -> int:
        return int(self._process.pid)

    def close(self) -> None:
        with self._lock:
            self._ended.set()
            self._socket.close() if self._process.poll() is not None else self._socket.shutdown(socket.SHUT_WR)
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:  # it waits for a store that does not answer
            self._process.kill()
            self._process.wait()

    def _read(self, ours: socket.socket) -> None:
        with ours, ours.makefile("rb") as stream:
            while (message := receive(stream)) is not None:
                if "up" in message:
                    self._up.set()
                _handle(message, self._on_stop)
            code = self._process.wait()
        if self._ended.is_set():
            return
        log.warning("the lease keeper process ended with %s, restarting it", code)
        if not self._ended.wait(self._pause()):
            self._start_again()

    def _pause(self) -> float:
        """Seconds until the restart: none after a long run, longer and longer if it cannot start."""
        if time.monotonic() - self._began > _STABLE_SECONDS:
            self._next_pause = 0.0
        pause, self._next_pause = self._next_pause, min(_LONGEST_PAUSE, max(_FIRST_PAUSE, 2 * self._next_pause))
        return pause

    def _start_again(self) -> None:
        with self._lock:
            if not self._ended.is_set():
                self._start()
                self._send({"add": list(self._held)})


def send(to: socket.socket, message: Any) -> None:
    """Send a message, unless the other side has ended."""
    raw = msgspec.msgpack.encode(message)
    with contextlib.suppress(OSError):
        to.sendall(HEAD.pack(len(raw)) + raw)


def receive(stream: Any) -> Any:
    """The next message; None when the other side has ended, in whatever way."""
    try:
        head = stream.read(HEAD.size)
        if head is None or len(head) < HEAD.size:
            return None
        (size,) = HEAD.unpack(head)
        raw = stream.read(size)
    except OSError:  # it was killed before it read everything
        return None
    return msgspec.msgpack.decode(raw) if len(raw) == size else None
