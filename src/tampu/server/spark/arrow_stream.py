"""Arrow batches as an answer that is sent while it is read: one batch at a time is in memory, however long it gets.

The stream ends with an empty batch that says how many rows there were; or, when something goes wrong in the middle,
what. So nobody takes a part for the whole.
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
    """What the writer has written and nobody has sent."""

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


class _Sent:
    """Batches on their way; all calls come from one thread, as stores want it."""

    def __init__(self, make: Callable[[], Iterator[pa.RecordBatch]], schema: pa.Schema) -> None:
        self._make = make
        self._schema = schema
        self._source: Iterator[pa.RecordBatch] | None = None
        self._sink = _Sink()
        self._writer: Any = None
        self._rows = 0

    def next(self) -> tuple[bytes, bool]:
        """(bytes, whether more come)"""
        if self._source is None:
            self._source = self._make()
        for batch in self._source:
            if len(batch):
                self._write(batch)
                self._rows += len(batch)
                return self._sink.taken(), True
        return self.end({END: str(self._rows).encode()}), False

    def end(self, told: dict[bytes, bytes]) -> bytes:
        self._write(pa.RecordBatch.from_pylist([], self._schema), told)
        self._writer.close()
        return self._sink.taken()

    def _write(self, batch: pa.RecordBatch, told: dict[bytes, bytes] | None = None) -> None:
        if self._writer is None:
            self._writer = pa.ipc.new_stream(pa.PythonFile(self._sink, mode="w"), self._schema)
        self._writer.write_batch(batch, custom_metadata=told)

    def close(self) -> None:
        close = getattr(self._source, "close", None)
        if close is not None:
            close()


class ArrowStream(Response):
    """Has a place among the streams of its node, and gives it back when it ends, however it ends."""

    def __init__(self, request: HttpRequest, places: asyncio.Semaphore, sent: _Sent) -> None:
        super().__init__()
        self._request = request
        self._places = places
        self._sent = sent
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="tampu-arrow")
        self._first = (b"", True)

    async def begin(self) -> None:
        """Errors before the first batch are problems, as everywhere."""
        await self._places.acquire()
        try:
            self._first = await self._in_thread(self._sent.next)
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
            part = await self._in_thread(self._sent.next)
            await self._request.readmit()  # a key that is revoked reads no more
            return part
        except TampuError as error:
            told = media.write(problem(error, self._request.id), "application/json")
            return await self._in_thread(lambda: (self._sent.end({PROBLEM: told}), False))

    async def _in_thread(self, work: Callable[[], tuple[bytes, bool]]) -> tuple[bytes, bool]:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _leave(self) -> None:
        self._places.release()
        self._thread.submit(self._sent.close)
        self._thread.shutdown(wait=False)


async def answer(
    request: HttpRequest, places: asyncio.Semaphore, make: Callable[[], Iterator[pa.RecordBatch]], schema: pa.Schema
) -> Response:
    stream = ArrowStream(request, places, _Sent(make, schema))
    await stream.begin()
    return stream
