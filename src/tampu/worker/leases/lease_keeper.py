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
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec

from tampu.broker import access
from tampu.broker.store import Store
from tampu.model.errors import LeaseLost, RateLimited, TampuError, Unavailable
from tampu.worker.current import CANCELLED, LOST
from tampu.worker.leases.lease_timers import LeaseTimers
from tampu.worker.outages import RETRYABLE, retry_after

log = logging.getLogger("tampu.worker")
OnStop = Callable[[Sequence[str], str], None]
"""Called with receipts whose tasks should stop, and the reason."""
_HEAD = struct.Struct(">I")
_START_SECONDS = 120.0
_END_SECONDS = 5.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0
_STABLE_SECONDS = 10.0
"""A process that ran this long is restarted at once if it dies."""


class LeaseKeeper(Protocol):
    def add(self, receipts: Sequence[str]) -> None: ...
    def remove(self, receipts: Sequence[str]) -> None: ...
    def beat(self) -> None: ...
    def close(self) -> None: ...


class Extended(msgspec.Struct, frozen=True):
    """Result of `extend`. Receipts that are in no list were extended."""

    cancelled: list[str]
    """Extended, but their messages have a cancel request."""
    lost: list[str]
    missed: list[str]
    """Not extended, because of ``error``."""
    error: TampuError | None = None


def extend(store: Store, receipts: Sequence[str], lease: float) -> Extended:
    try:
        replies = access.run(store, access.verbs(store).extend_many([(receipt, lease) for receipt in receipts]))
    except RateLimited as error:
        return _in_halves(store, receipts, lease, error)
    except TampuError as error:  # also permanent errors: the next try reports them again
        return Extended([], [], list(receipts), error)
    cancelled, lost, missed, retryable = [], [], [], None
    for receipt, reply in zip(receipts, replies, strict=True):
        if isinstance(reply, LeaseLost):
            lost.append(receipt)
        elif isinstance(reply, RETRYABLE):
            missed.append(receipt)
            retryable = reply
        elif not isinstance(reply, TampuError) and reply.cancel_requested:
            cancelled.append(receipt)
    return Extended(cancelled, lost, missed, retryable)


def _in_halves(store: Store, receipts: Sequence[str], lease: float, error: RateLimited) -> Extended:
    """The server refused the batch as too large: extend what it accepts now, and the others soon."""
    half = len(receipts) // 2
    if not half:
        return Extended([], [], list(receipts), error)
    first = extend(store, receipts[:half], lease)
    if first.error is not None:
        return msgspec.structs.replace(first, missed=[*first.missed, *receipts[half:]])
    rest = extend(store, receipts[half:], lease)
    return Extended([*first.cancelled, *rest.cancelled], [*first.lost, *rest.lost], rest.missed, rest.error)


class LeaseKeeperThread:
    """Extends leases from a thread of this process."""

    def __init__(self, store: Store, lease: float, on_stop: OnStop) -> None:
        self._q = store
        self._lease = lease
        self._on_stop = on_stop
        self._timers = LeaseTimers(lease)
        self._lock = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="tampu-lease-keeper", daemon=True)
        self._thread.start()

    def add(self, receipts: Sequence[str]) -> None:
        with self._lock:
            self._timers.add(receipts, time.monotonic())
            self._lock.notify()

    def remove(self, receipts: Sequence[str]) -> None:
        with self._lock:
            self._timers.remove(receipts)

    def beat(self) -> None:
        """Not needed: the thread runs only if this process does."""

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._lock.notify()
        self._thread.join(_END_SECONDS)  # it may wait for a store that does not answer

    def _run(self) -> None:
        failing = False
        while True:
            with self._lock:
                if self._closed:
                    return
                at = self._timers.next()
                if at is None or at > time.monotonic():
                    self._lock.wait(None if at is None else at - time.monotonic())
                    continue
                due = self._timers.due(time.monotonic())
            found = extend(self._q, due, self._lease)
            if found.error is not None and not failing:
                log.warning("leases could not be extended, retrying: %s", found.error)
            failing = found.error is not None
            with self._lock:
                self._timers.remove(found.lost)
                self._timers.retry(found.missed, time.monotonic(), retry_after(found.error))
            self._on_stop(found.cancelled, CANCELLED)
            self._on_stop(found.lost, LOST)


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
        raw = msgspec.msgpack.encode(message)
        with contextlib.suppress(OSError):  # it died: `_read` restarts it and sends everything again
            self._socket.sendall(_HEAD.pack(len(raw)) + raw)

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
                self._on_stop(message.get("cancelled", ()), CANCELLED)
                self._on_stop(message.get("lost", ()), LOST)
                if "warn" in message:
                    log.warning("%s", message["warn"])
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


def receive(stream: Any) -> Any:
    """The next message; None when the other side has ended, in whatever way."""
    try:
        head = stream.read(_HEAD.size)
        if head is None or len(head) < _HEAD.size:
            return None
        (size,) = _HEAD.unpack(head)
        raw = stream.read(size)
    except OSError:  # it was killed before it read everything
        return None
    return msgspec.msgpack.decode(raw) if len(raw) == size else None
