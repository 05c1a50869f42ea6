"""Streams of leases for workers: at most ``credit`` unsettled leases at a time, settled without blocking.

`Stream` is the interface for workers, and the same for all stores. Its subclasses get leases and send settlements:
`PolledStream` claims and settles with two threads of its own; the client of a server has one to which leases are
pushed.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from typing import Any, Self

import msgspec

from tampu import tracing
from tampu.broker import validate
from tampu.broker.streams.requests import ExtendRequest, SettleRequest
from tampu.model.errors import InvalidMessage, InvalidState, TampuError, Unavailable
from tampu.model.message import Lease
from tampu.model.outcome import Ack, Nack, Outcome, Reject, Release, Settlement
from tampu.model.reasons import UNRECOVERABLE
from tampu.model.times import SECOND, Duration, duration

MOST_CREDIT = 10_000
_WAIT_SECONDS = 1.0
_AGAIN_SECONDS = 0.5
_CLOSE_SECONDS = 30.0


class StreamRequest(msgspec.Struct, frozen=True):
    """The checked options of a stream."""

    queues: list[str]
    credit: int
    lease_us: int | None
    worker: str | None

    @classmethod
    def of(cls, queues: str | Sequence[str], credit: int, lease: Duration | None, worker: str | None) -> StreamRequest:
        validate.whole(credit, "credit", 1, MOST_CREDIT)
        names, lease_us = validate.claim(queues, 1, lease, worker)
        return cls(list(names), credit, lease_us, worker)


class Stream:
    """Leases as messages arrive. Iterate over it, and settle each lease. Threads may share it."""

    def __init__(self, request: StreamRequest) -> None:
        self._request = request
        self._inbox: queue.SimpleQueue[Lease | None] = queue.SimpleQueue()
        self._lock = threading.Condition()
        self._held: set[str] = set()
        """Receipts that use credit: received and not settled."""
        self._unsettled = 0
        self._closed = False
        self._failure: TampuError | None = None

    # -- receiving

    def __iter__(self) -> Iterator[Lease]:
        while (lease := self.next()) is not None:
            yield lease

    def next(self, wait: float | None = None) -> Lease | None:
        """The next lease; None after ``wait`` seconds, or when the stream has ended. Raises the error that ended it."""
        try:
            lease = self._inbox.get(timeout=wait)
        except queue.Empty:
            return None
        if lease is None:
            self._inbox.put(None)  # for other threads that wait
            if self._failure is not None:
                raise self._failure
        return lease

    # -- settle

    def ack(self, lease: Lease, result: Any = None) -> Future[Outcome]:
        """The work is done. Does not block; the future has the outcome."""
        return self.settle(Ack(lease, result))

    def nack(
        self,
        lease: Lease,
        error: str | BaseException | None = None,
        delay: Duration | None = None,
        traceback: str | None = None,
        max_attempts: int | None = None,
    ) -> Future[Outcome]:
        """The work failed: retry later, or dead if no attempts are left."""
        return self.settle(Nack(lease, error, delay, traceback, max_attempts))  # type: ignore[arg-type]  # checked where it is settled

    def reject(self, lease: Lease, reason: str = UNRECOVERABLE, error: Any = None) -> Future[Outcome]:
        """The work can never succeed: dead now."""
        return self.settle(Reject(lease, reason, error))

    def release(self, lease: Lease) -> Future[Outcome]:
        """Give the message back. The attempt does not count."""
        return self.settle(Release(lease))

    def settle(self, settlement: Settlement) -> Future[Outcome]:
        """End a lease of this stream. Its credit is free at once; the future has the outcome when it is stored."""
        if not isinstance(settlement, Ack | Nack | Reject | Release) or type(settlement.lease) is not Lease:
            raise InvalidMessage("settle takes Ack, Nack, Reject and Release of a lease", field="settlements")
        future: Future[Outcome] = Future()
        future.set_running_or_notify_cancel()
        with self._lock:
            if self._closed:
                raise InvalidState("this stream was closed", hint="settle on the store itself")
            self._unsettled += 1
            self._held.discard(settlement.lease.receipt)
        self._send(SettleRequest(settlement, future, tracing.here() if tracing.on() else None))
        return future

    def extend(self, lease: Lease, by: Duration | None = None) -> Future[Lease]:
        """Keep a lease for ``by`` from now. Does not block; the future has the extended lease, or `LeaseLost`."""
        if type(lease) is not Lease:
            raise InvalidMessage("pass the lease", field="lease")
        seconds = None if by is None else duration(by, "by", zero=False) / SECOND
        future: Future[Lease] = Future()
        future.set_running_or_notify_cancel()
        with self._lock:
            if self._closed:
                raise InvalidState("this stream was closed", hint="extend on the store itself")
            self._unsettled += 1
        self._send(ExtendRequest(lease, seconds, future))
        return future

    def flush(self, wait: float | None = None) -> bool:
        """Wait until all settlements are stored or have failed; false if that takes more than ``wait`` seconds."""
        with self._lock:
            return self._lock.wait_for(lambda: not self._unsettled, wait)

    # -- for subclasses

    def _send(self, request: SettleRequest | ExtendRequest) -> None:
        """Send a settlement or an extension. Credit may have become free."""
        raise NotImplementedError

    def _stop(self) -> None:
        """Receive no more leases. Settlements are sent until `_finish`."""
        raise NotImplementedError

    def _finish(self) -> None:
        raise NotImplementedError

    @property
    def _free(self) -> int:
        return self._request.credit - len(self._held)

    def _received(self, leases: Sequence[Lease]) -> bool:
        """Pass leases to the worker; false if the stream was closed."""
        with self._lock:
            if self._closed:
                return False
            self._held.update(lease.receipt for lease in leases)
            for lease in leases:
                self._inbox.put(lease)
            return True

    def _settled(self, request: SettleRequest | ExtendRequest, outcome: Outcome | Lease | TampuError) -> None:
        future: Future[Any] = request.future
        if isinstance(outcome, TampuError):
            future.set_exception(outcome)
        elif isinstance(outcome, Outcome) and outcome.error is not None:
            future.set_exception(outcome.error)
        else:
            future.set_result(outcome)
        with self._lock:
            self._unsettled -= 1
            self._lock.notify_all()

    def _fail(self, error: TampuError) -> None:
        self._failure = error
        self._inbox.put(None)

    # -- the end

    def close(self) -> None:
        """Release leases that the worker did not get, and wait for settlements. Leases that it has stay valid."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._stop()
        self._release_unread()
        self.flush(_CLOSE_SECONDS)
        self._inbox.put(None)
        self._finish()

    def _release_unread(self) -> None:
        while True:
            try:
                lease = self._inbox.get_nowait()
            except queue.Empty:
                return
            if lease is None:
                continue
            future: Future[Outcome] = Future()
            future.set_running_or_notify_cancel()
            with self._lock:
                self._unsettled += 1
                self._held.discard(lease.receipt)
            self._send(SettleRequest(Release(lease), future))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class PolledStream(Stream):
    """A stream that claims, with waiting, in one thread and settles in batches in another."""

    def __init__(self, store: Any, request: StreamRequest) -> None:
        super().__init__(request)
        self._store = store
        self._stopping = threading.Event()
        self._pending: deque[SettleRequest | ExtendRequest] = deque()
        self._work = threading.Condition()
        self._ended = False
        self._threads = [
            threading.Thread(target=work, name=f"tampu-stream-{work.__name__.strip('_')}", daemon=True)
            for work in (self._claim, self._settle)
        ]
        for thread in self._threads:
            thread.start()

    def _send(self, request: SettleRequest | ExtendRequest) -> None:
        with self._work:
            self._pending.append(request)
            self._work.notify_all()

    def _claim(self) -> None:
        while not self._stopping.is_set():
            with self._work:
                self._work.wait_for(lambda: self._free > 0 or self._stopping.is_set())
            if self._stopping.is_set():
                return
            try:
                lease = None if self._request.lease_us is None else self._request.lease_us / 1_000_000
                leases = self._store.claim(
                    self._request.queues, limit=self._free, lease=lease, wait=_WAIT_SECONDS, worker=self._request.worker
                )
            except Unavailable as error:
                if self._store._core.closed:
                    self._fail(error)
                    return
                self._stopping.wait(_AGAIN_SECONDS)
            except TampuError as error:
                self._fail(error)
                return
            else:
                if leases:
                    if not self._received(leases):
                        self._store.settle([Release(lease) for lease in leases])
                elif self._store._core.closed:
                    self._inbox.put(None)
                    return

    def _settle(self) -> None:
        while True:
            with self._work:
                self._work.wait_for(lambda: bool(self._pending) or self._ended)
                batch = list(self._pending)
                self._pending.clear()
            if not batch:
                return
            self._settle_batch([request for request in batch if isinstance(request, SettleRequest)])
            for request in batch:
                if isinstance(request, ExtendRequest):
                    try:
                        self._settled(request, self._store.extend(request.lease, request.by))
                    except TampuError as error:
                        self._settled(request, error)

    def _settle_batch(self, batch: list[SettleRequest]) -> None:
        if not batch:
            return
        outcomes: Sequence[Outcome | TampuError]
        try:
            outcomes = self._store.settle([request.settlement for request in batch])
        except TampuError as error:
            outcomes = [error] * len(batch)
        for request, outcome in zip(batch, outcomes, strict=True):
            self._settled(request, outcome)

    def _stop(self) -> None:
        self._stopping.set()
        with self._work:
            self._work.notify_all()

    def _finish(self) -> None:
        with self._work:
            self._ended = True
            self._work.notify_all()
        for thread in self._threads:
            thread.join()
