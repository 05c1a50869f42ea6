"""Extends leases when they are due, and reports what became of them. Runs in the lease keeper's thread or process."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from tampu.broker import access
from tampu.broker.store import Store
from tampu.model.errors import LeaseLost, RateLimited, TampuError
from tampu.worker.outages import RETRYABLE, retry_after

_PART = 3
"""A lease is extended after a third of its time, so that two more tries fit into the rest."""
_ASK_SECONDS = 3.0
"""Extend at least this often: the reply also says whether the message has a cancel request."""
_TOGETHER_SECONDS = 1.0
"""Leases that are due within this time are extended with those that are due now: one commit a second at most."""


class LeaseTimers:
    """When each lease is to be extended."""

    def __init__(self, lease: float) -> None:
        self._lease = lease
        self._every = min(lease / _PART, _ASK_SECONDS)
        self._together = min(self._every / _PART, _TOGETHER_SECONDS)
        self._due: dict[str, float] = {}
        """When to extend each. Sorted by time, because the interval is the same for all."""

    def add(self, receipts: Iterable[str], now: float) -> None:
        self._due.update(dict.fromkeys(receipts, now + self._every))

    def remove(self, receipts: Iterable[str]) -> None:
        for receipt in receipts:
            self._due.pop(receipt, None)

    def due(self, now: float) -> list[str]:
        """The leases to extend now, with those that are due soon; they count as extended."""
        next_at = self.next()
        if next_at is None or next_at > now:
            return []
        found = []
        for receipt, at in self._due.items():
            if at > now + self._together:
                break
            found.append(receipt)
        for receipt in found:
            del self._due[receipt]
            self._due[receipt] = now + self._every
        return found

    def retry(self, receipts: Sequence[str], now: float, after: float = 0.0) -> None:
        """These were not extended: try again soon, but not before ``after`` seconds.

        A store that asked for a pause is from then on called no more often than the leases need.
        """
        if after:
            self._every = self._lease / _PART
        retry_at = now + min(self._every, max(self._every / 10, after))
        for receipt in receipts:
            if receipt in self._due:
                self._due[receipt] = retry_at
        self._due = dict(sorted(self._due.items(), key=lambda item: item[1]))

    def next(self) -> float | None:
        """When the next lease is due."""
        return next(iter(self._due.values()), None)


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


class LeaseExtender:
    def __init__(
        self,
        lease: float,
        store: Callable[[], Store],
        report: Callable[[dict[str, Any]], None],
        worker_runs: Callable[[float], bool] = lambda _silent: True,
    ) -> None:
        self._lease = lease
        self._store = store
        self._report = report
        self._worker_runs = worker_runs
        """Called with the seconds since the last message. While it returns False, nothing is extended."""
        self._timers = LeaseTimers(lease)
        self._last_message_at = time.monotonic()
        self._failing = False

    def serve(self, inbox: queue.SimpleQueue[Any]) -> None:
        """Handle messages (receipts to ``add`` and to ``remove``) and extend what is due, until None comes."""
        while True:
            at = self._timers.next()
            try:
                message = inbox.get(timeout=None if at is None else max(0.0, at - time.monotonic()))
            except queue.Empty:
                message = {}
            if message is None:
                return
            if message:
                self._last_message_at = time.monotonic()
            self._timers.remove(message.get("remove", ()))
            self._timers.add(message.get("add", ()), time.monotonic())
            self._extend_due()

    def _extend_due(self) -> None:
        now = time.monotonic()
        due = self._timers.due(now)
        if not due or not self._worker_runs(now - self._last_message_at):
            return
        try:
            store = self._store()
        except TampuError as error:
            found = Extended([], [], due, error)
        else:
            found = extend(store, due, self._lease)
        if found.error is not None and not self._failing:
            self._report({"warn": f"leases could not be extended, retrying: {found.error}"})
        self._failing = found.error is not None
        self._timers.retry(found.missed, time.monotonic(), retry_after(found.error))
        self._timers.remove(found.lost)
        if found.cancelled or found.lost:
            self._report({"cancelled": found.cancelled, "lost": found.lost})
