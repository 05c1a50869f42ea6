"""Keeping leases alive while their messages are worked on.

`LeaseKeeperProcess` runs in a process of its own, with its own connection, so that no task can stop it by holding the
interpreter, blocking the loop or using all processor time. `LeaseKeeperThread` does the same from a thread, for stores
that no other process can open.

The warden is told what is held before a task starts, and goes when the worker goes. It does not extend for a worker
that was stopped (SIGSTOP), nor for one whose loop has not moved for longer than any of its tasks may take.
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
from tampu.worker.outages import AWAY, retry_after

log = logging.getLogger("tampu.worker")
Told = Callable[[Sequence[str], str], None]
"""Is told of receipts whose work should stop, and why."""
_HEAD = struct.Struct(">I")
_START_SECONDS = 120.0
_END_SECONDS = 5.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0
_GOOD_SECONDS = 10.0
"""A warden that lived so long was not broken from the start."""


class LeaseKeeper(Protocol):
    def add(self, receipts: Sequence[str]) -> None: ...
    def remove(self, receipts: Sequence[str]) -> None: ...
    def beat(self) -> None: ...
    def close(self) -> None: ...


class Extended(msgspec.Struct, frozen=True):
    """What became of leases that were to be extended; those not named were."""

    cancelled: list[str]
    """Somebody wants these to stop."""
    lost: list[str]
    missed: list[str]
    """The store could not be asked about these."""
    error: TampuError | None = None
    """Why not."""


def extend(store: Store, receipts: Sequence[str], lease: float) -> Extended:
    try:
        replies = access.run(store, access.verbs(store).extend_many([(receipt, lease) for receipt in receipts]))
    except RateLimited as error:
        return _in_halves(store, receipts, lease, error)
    except TampuError as error:  # also one that will not go by itself: the next try says so again
        return Extended([], [], list(receipts), error)
    cancelled, lost, missed, away = [], [], [], None
    for receipt, reply in zip(receipts, replies, strict=True):
        if isinstance(reply, LeaseLost):
            lost.append(receipt)
        elif isinstance(reply, AWAY):
            missed.append(receipt)
            away = reply
        elif not isinstance(reply, TampuError) and reply.cancel_requested:
            cancelled.append(receipt)
    return Extended(cancelled, lost, missed, away)


def _in_halves(store: Store, receipts: Sequence[str], lease: float, error: RateLimited) -> Extended:
    """Too many at once: as many as the server takes, and the others soon."""
    half = len(receipts) // 2
    if not half:
        return Extended([], [], list(receipts), error)
    first = extend(store, receipts[:half], lease)
    if first.error is not None:
        return msgspec.structs.replace(first, missed=[*first.missed, *receipts[half:]])
    rest = extend(store, receipts[half:], lease)
    return Extended([*first.cancelled, *rest.cancelled], [*first.lost, *rest.lost], rest.missed, rest.error)


class LeaseKeeperThread:
    """From a thread of this process."""

    def __init__(self, store: Store, lease: float, told: Told) -> None:
        self._q = store
        self._lease = lease
        self._told = told
        self._timers = LeaseTimers(lease)
        self._lock = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="tampu-alive", daemon=True)
        self._thread.start()

    def add(self, receipts: Sequence[str]) -> None:
        with self._lock:
            self._timers.add(receipts, time.monotonic())
            self._lock.notify()

    def remove(self, receipts: Sequence[str]) -> None:
        with self._lock:
            self._timers.remove(receipts)

    def beat(self) -> None:
        """The thread itself shows that this process runs."""

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
                log.warning("leases could not be extended, trying again: %s", found.error)
            failing = found.error is not None
            with self._lock:
                self._timers.remove(found.lost)
                self._timers.again(found.missed, time.monotonic(), retry_after(found.error))
            self._told(found.cancelled, CANCELLED)
            self._told(found.lost, LOST)


class LeaseKeeperProcess:
    """By a process of its own; started again if it dies."""

    def __init__(self, opening: dict[str, Any], lease: float, patience: float | None, told: Told) -> None:
        self._hello = {**opening, "lease": lease, "patience": patience, "pid": os.getpid()}
        self._told = told
        self._lock = threading.Lock()
        self._held: set[str] = set()
        self._ended = threading.Event()
        self._next_pause = 0.0
        self._up = threading.Event()
        self._start()
        if not self._up.wait(_START_SECONDS):  # from now on it is quicker than any lease
            self.close()
            raise Unavailable("the process that keeps leases alive does not start")

    def _start(self) -> None:
        self._began = time.monotonic()
        ours, theirs = socket.socketpair()
        with theirs:
            # Nothing is handed over by arguments: a url may hold a password.
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tampu.worker.leases.lease_keeper_process"],
                stdin=theirs.fileno(), stdout=subprocess.DEVNULL,
                start_new_session=True,  # a Ctrl-C at the terminal is for the worker
            )  # fmt: skip
        self._socket = ours
        self._send(self._hello)
        threading.Thread(target=self._hear, args=(ours,), name="tampu-warden", daemon=True).start()

    def _send(self, message: Any) -> None:
        raw = msgspec.msgpack.encode(message)
        with contextlib.suppress(OSError):  # it died: it is started again by who hears it, and told everything
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
        """The loop of this worker moves."""
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
        except subprocess.TimeoutExpired:  # it waits for a store that is gone
            self._process.kill()
            self._process.wait()

    def _hear(self, ours: socket.socket) -> None:
        with ours, ours.makefile("rb") as stream:
            while (message := receive(stream)) is not None:
                if "up" in message:
                    self._up.set()
                self._told(message.get("cancelled", ()), CANCELLED)
                self._told(message.get("lost", ()), LOST)
                if "warn" in message:
                    log.warning("%s", message["warn"])
            code = self._process.wait()
        if self._ended.is_set():
            return
        log.warning("the process that keeps leases alive ended (%s), starting it again", code)
        if not self._ended.wait(self._pause()):
            self._start_again()

    def _pause(self) -> float:
        """At once for one that has lived; longer and longer for one that can not start."""
        if time.monotonic() - self._began > _GOOD_SECONDS:
            self._next_pause = 0.0
        pause, self._next_pause = self._next_pause, min(_LONGEST_PAUSE, max(_FIRST_PAUSE, 2 * self._next_pause))
        return pause

    def _start_again(self) -> None:
        with self._lock:
            if not self._ended.is_set():
                self._start()
                self._send({"add": list(self._held)})


def receive(stream: Any) -> Any:
    """The next message; None at the end, however the other side has ended."""
    try:
        head = stream.read(_HEAD.size)
        if head is None or len(head) < _HEAD.size:
            return None
        (size,) = _HEAD.unpack(head)
        raw = stream.read(size)
    except OSError:  # it was killed, and had something unread
        return None
    return msgspec.msgpack.decode(raw) if len(raw) == size else None
