"""Streams of leases for workers: as many as there is credit, settled without waiting.

`Stream` is what workers see, and the same everywhere. Where leases come from, and where settlements go, is the business
of its kinds: `PolledStream` claims and settles with two threads of its own; over a server there is one that is pushed.
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
from tampu.broker.stream_requests import ExtendRequest, SettleRequest
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
    """What a worker wants."""

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
    """Leases as they come. Iterate over it, and settle what it gives; safe to share between threads."""

    def __init__(self, asked: StreamRequest) -> None:
        self._asked = asked
        self._inbox: queue.SimpleQueue[Lease | None] = queue.SimpleQueue()
        self._lock = threading.Condition()
        self._held: set[str] = set()
        """Receipts that use credit: handed out or waiting to be, and not settled."""
        self._unsettled = 0
        self._closed = False
        self._failure: TampuError | None = None

    # -- taking

    def __iter__(self) -> Iterator[Lease]:
        while (lease := self.next()) is not None:
            yield lease

    def next(self, wait: float | None = None) -> Lease | None:
        """The next lease; None when ``wait`` seconds are over, or the stream is. Raises what ended the stream."""
        try:
            lease = self._inbox.get(timeout=wait)
        except queue.Empty:
            return None
        if lease is None:
            self._inbox.put(None)  # for the others that wait
            if self._failure is not None:
                raise self._failure
        return lease

    # -- settling

    def ack(self, lease: Lease, result: Any = None) -> Future[Outcome]:
        """The work is done. Does not wait; the future has the outcome."""
        return self.settle(Ack(lease, result))

    def nack(
        self,
        lease: Lease,
        error: str | BaseException | None = None,
        delay: Duration | None = None,
        traceback: str | None = None,
        max_attempts: int | None = None,
    ) -> Future[Outcome]:
        """The work failed: again later, or dead when attempts are used up."""
        return self.settle(Nack(lease, error, delay, traceback, max_attempts))  # type: ignore[arg-type]  # checked where it is settled

    def reject(self, lease: Lease, reason: str = UNRECOVERABLE, error: Any = None) -> Future[Outcome]:
        """The work can never succeed: dead now."""
        return self.settle(Reject(lease, reason, error))

    def release(self, lease: Lease) -> Future[Outcome]:
        """Give the message back unworked; the attempt does not count."""
        return self.settle(Release(lease))

    def settle(self, settlement: Settlement) -> Future[Outcome]:
        """End a lease of this stream. The credit is free at once; the outcome comes when it is stored."""
        if not isinstance(settlement, Ack | Nack | Reject | Release) or type(settlement.lease) is not Lease:
            raise InvalidMessage("settle takes Ack, Nack, Reject and Release of a lease", field="settlements")
        future: Future[Outcome] = Future()
        future.set_running_or_notify_cancel()
        with self._lock:
            if self._closed:
                raise InvalidState("this stream was closed", hint="settle on the queue itself")
            self._unsettled += 1
            self._held.discard(settlement.lease.receipt)
        self._send(SettleRequest(settlement, future, tracing.here() if tracing.on() else None))
        return future

    def extend(self, lease: Lease, by: Duration | None = None) -> Future[Lease]:
        """Keep a lease for ``by`` from now. Does not wait; the future has the lease as it is then, or `LeaseLost`."""
        if type(lease) is not Lease:
            raise InvalidMessage("pass the lease", field="lease")
        seconds = None if by is None else duration(by, "by", zero=False) / SECOND
        future: Future[Lease] = Future()
        future.set_running_or_notify_cancel()
        with self._lock:
            if self._closed:
                raise InvalidState("this stream was closed", hint="extend on the queue itself")
            self._unsettled += 1
        self._send(ExtendRequest(lease, seconds, future))
        return future

    def flush(self, wait: float | None = None) -> bool:
        """Wait until all that was settled is stored, or has its error; false when ``wait`` seconds are over first."""
        with self._lock:
            return self._lock.wait_for(lambda: not self._unsettled, wait)

    # -- for the kinds

    def _send(self, settling: SettleRequest | ExtendRequest) -> None:
        """Take a settlement, or a longer lease, on its way; credit may have become free."""
        raise NotImplementedError

    def _stop(self) -> None:
        """No more leases; settlements go on until `_finish`."""
        raise NotImplementedError

    def _finish(self) -> None:
        raise NotImplementedError

    @property
    def _free(self) -> int:
        return self._asked.credit - len(self._held)

    def _came(self, leases: Sequence[Lease]) -> bool:
        """Hand them out; false when it is too late for that."""
        with self._lock:
            if self._closed:
                return False
            self._held.update(lease.receipt for lease in leases)
            for lease in leases:
                self._inbox.put(lease)
            return True

    def _settled(self, settling: SettleRequest | ExtendRequest, outcome: Outcome | Lease | TampuError) -> None:
        future: Future[Any] = settling.future
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
        """Give back what was not handed out, wait for what was settled, and end. Leases handed out stay valid."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._stop()
        self._give_back()
        self.flush(_CLOSE_SECONDS)
        self._inbox.put(None)
        self._finish()

    def _give_back(self) -> None:
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
    """By claims that wait and settles in batches, with a thread for each."""

    def __init__(self, q: Any, asked: StreamRequest) -> None:
        super().__init__(asked)
        self._q = q
        self._stopping = threading.Event()
        self._going: deque[SettleRequest | ExtendRequest] = deque()
        self._work = threading.Condition()
        self._ended = False
        self._threads = [
            threading.Thread(target=work, name=f"tampu-stream-{work.__name__.strip('_')}", daemon=True)
            for work in (self._claim, self._settle)
        ]
        for thread in self._threads:
            thread.start()

    def _send(self, settling: SettleRequest | ExtendRequest) -> None:
        with self._work:
            self._going.append(settling)
            self._work.notify_all()

    def _claim(self) -> None:
        while not self._stopping.is_set():
            with self._work:
                self._work.wait_for(lambda: self._free > 0 or self._stopping.is_set())
            if self._stopping.is_set():
                return
            try:
                lease = None if self._asked.lease_us is None else self._asked.lease_us / 1_000_000
                leases = self._q.claim(
                    self._asked.queues, limit=self._free, lease=lease, wait=_WAIT_SECONDS, worker=self._asked.worker
                )
            except Unavailable as error:
                if self._q._core.closed:
                    self._fail(error)
                    return
                self._stopping.wait(_AGAIN_SECONDS)
            except TampuError as error:
                self._fail(error)
                return
            else:
                if leases:
                    if not self._came(leases):
                        self._q.settle([Release(lease) for lease in leases])
                elif self._q._core.closed:
                    self._inbox.put(None)
                    return

    def _settle(self) -> None:
        while True:
            with self._work:
                self._work.wait_for(lambda: bool(self._going) or self._ended)
                batch = list(self._going)
                self._going.clear()
            if not batch:
                return
            self._end([one for one in batch if isinstance(one, SettleRequest)])
            for one in batch:
                if isinstance(one, ExtendRequest):
                    try:
                        self._settled(one, self._q.extend(one.lease, one.by))
                    except TampuError as error:
                        self._settled(one, error)

    def _end(self, batch: list[SettleRequest]) -> None:
        if not batch:
            return
        outcomes: Sequence[Outcome | TampuError]
        try:
            outcomes = self._q.settle([one.settlement for one in batch])
        except TampuError as error:
            outcomes = [error] * len(batch)
        for one, outcome in zip(batch, outcomes, strict=True):
            self._settled(one, outcome)

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
