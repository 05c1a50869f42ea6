"""A stream of leases for event loops: a `Stream`, read in a thread that may block."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Self

from tampu.broker.streams.stream import Stream
from tampu.model.errors import InvalidState
from tampu.model.message import Lease
from tampu.model.outcome import Outcome, Settlement
from tampu.model.times import Duration


class AsyncStream:
    """``async with store.stream("jobs") as stream``. Settling returns a future, which you may await or not."""

    def __init__(self, open_stream: Callable[[], Stream]) -> None:
        self._open_stream = open_stream
        self._stream: Stream | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="tampu-stream-next")

    async def __aenter__(self) -> Self:
        self._stream = await asyncio.to_thread(self._open_stream)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def _open(self) -> Stream:
        if self._stream is None:
            raise InvalidState("this stream is not open", hint="use it with: async with store.stream(…) as stream")
        return self._stream

    async def __aiter__(self) -> AsyncIterator[Lease]:
        while (lease := await self.next()) is not None:
            yield lease

    async def next(self, wait: float | None = None) -> Lease | None:
        """The next lease; None after ``wait`` seconds, or when the stream has ended."""
        stream = self._open
        reading = self._thread.submit(stream.next, wait)
        try:
            return await asyncio.wrap_future(reading)
        except asyncio.CancelledError:
            # The thread goes on waiting; the next caller gets the lease that it receives.
            reading.add_done_callback(lambda done: _give_back(stream, done))
            raise

    def settle(self, settlement: Settlement) -> asyncio.Future[Outcome]:
        return asyncio.wrap_future(self._open.settle(settlement))

    def ack(self, lease: Lease, result: Any = None) -> asyncio.Future[Outcome]:
        return asyncio.wrap_future(self._open.ack(lease, result))

    def nack(self, lease: Lease, *args: Any, **kwargs: Any) -> asyncio.Future[Outcome]:
        return asyncio.wrap_future(self._open.nack(lease, *args, **kwargs))

    def reject(self, lease: Lease, *args: Any, **kwargs: Any) -> asyncio.Future[Outcome]:
        return asyncio.wrap_future(self._open.reject(lease, *args, **kwargs))

    def release(self, lease: Lease) -> asyncio.Future[Outcome]:
        return asyncio.wrap_future(self._open.release(lease))

    def extend(self, lease: Lease, by: Duration | None = None) -> asyncio.Future[Lease]:
        return asyncio.wrap_future(self._open.extend(lease, by))

    async def flush(self, wait: float | None = None) -> bool:
        """Wait until all settlements are stored."""
        return await asyncio.to_thread(self._open.flush, wait)

    async def close(self) -> None:
        """Like `Stream.close`."""
        if self._stream is not None:
            await asyncio.to_thread(self._stream.close)
        self._thread.shutdown(wait=False)


def _give_back(stream: Stream, done: Future[Lease | None]) -> None:
    if not done.cancelled() and done.exception() is None and (lease := done.result()) is not None:
        stream._inbox.put(lease)
