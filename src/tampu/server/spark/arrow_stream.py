"""Arrow batches as a response that is sent while it is read, with one batch in memory at a time.

The stream ends with an empty batch that has the number of rows, or the error if reading failed. So no client takes a
part for the whole.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
from starlette.responses import Response

from tampu.model.errors import TampuError
from tampu.server.http.request import HttpRequest, Receive, Scope, Send
from tampu.stores.wire import ARROW, END, PROBLEM
from tampu.wire import media
from tampu.wire.problems import problem


class _Sink:
    """The bytes that were written and not sent yet."""

    closed = False

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def write(self, data: Any) -> int:
        self._parts.append(bytes(data))
        return len(self._parts[-1])

    def flush(self) -> None:
        pass

    def taken(self) -> bytes:
        parts, self._parts = self._parts, []
        return b"".join(parts)


class _Encoder:
    """Encodes batches. All calls come from one thread, as stores require."""

    def __init__(self, make: Callable[[], Iterator[pa.RecordBatch]], schema: pa.Schema) -> None:
        self._make = make
        self._schema = schema
        self._source: Iterator[pa.RecordBatch] | None = None
        self._sink = _Sink()
        self._writer: Any = None
        self._rows = 0

    def next(self) -> tuple[bytes, bool]:
        """(bytes, whether there are more)"""
        if self._source is None:
            self._source = self._make()
        for batch in self._source:
            if len(batch):
                self._write(batch)
                self._rows += len(batch)
                return self._sink.taken(), True
        return self.end({END: str(self._rows).encode()}), False

    def end(self, metadata: dict[bytes, bytes]) -> bytes:
        self._write(pa.RecordBatch.from_pylist([], self._schema), metadata)
        self._writer.close()
        return self._sink.taken()

    def _write(self, batch: pa.RecordBatch, metadata: dict[bytes, bytes] | None = None) -> None:
        if self._writer is None:
            self._writer = pa.ipc.new_stream(pa.PythonFile(self._sink, mode="w"), self._schema)
        self._writer.write_batch(batch, custom_metadata=metadata)

    def close(self) -> None:
        close = getattr(self._source, "close", None)
        if close is not None:
            close()


class ArrowStream(Response):
    """Takes one of the node's stream slots, and frees it when it ends in any way."""

    def __init__(self, request: HttpRequest, slots: asyncio.Semaphore, encoder: _Encoder) -> None:
        super().__init__()
        self._request = request
        self._slots = slots
        self._encoder = encoder
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="tampu-arrow")
        self._first = (b"", True)

    async def begin(self) -> None:
        """Read the first batch. Errors until then become normal error responses."""
        self._request.server.budget.listings.take()
        try:
            await self._slots.acquire()
        except BaseException:
            self._request.server.budget.listings.give()
            raise
        try:
            self._first = await self._in_thread(self._encoder.next)
        except BaseException:
            self._leave()
            raise

    async def __call__(self, _scope: Scope, _receive: Receive, send: Send) -> None:  # type: ignore[override]  # plain ASGI
        left: asyncio.Future[Any] = asyncio.ensure_future(self._request.left())
        try:
            headers = [(b"content-type", ARROW.encode()), (b"cache-control", b"no-store")]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            part, more = self._first
            while True:
                await send({"type": "http.response.body", "body": part, "more_body": more})
                if not more or left.done():
                    return
                part, more = await self._next()
        finally:
            left.cancel()
            self._leave()

    async def _next(self) -> tuple[bytes, bool]:
        try:
            part = await self._in_thread(self._encoder.next)
            await self._request.readmit()  # the key may have been revoked
            return part
        except TampuError as error:
            raw = media.write(problem(error, self._request.id), "application/json")
            return await self._in_thread(lambda: (self._encoder.end({PROBLEM: raw}), False))

    async def _in_thread(self, work: Callable[[], tuple[bytes, bool]]) -> tuple[bytes, bool]:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _leave(self) -> None:
        self._slots.release()
        self._request.server.budget.listings.give()
        self._thread.submit(self._encoder.close)
        self._thread.shutdown(wait=False)


async def answer(
    request: HttpRequest, slots: asyncio.Semaphore, make: Callable[[], Iterator[pa.RecordBatch]], schema: pa.Schema
) -> Response:
    stream = ArrowStream(request, slots, _Encoder(make, schema))
    await stream.begin()
    return stream
