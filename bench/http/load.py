"""A load generator that costs little: connections that send one request, wait for its answer, and send it again."""

from __future__ import annotations

import asyncio
import functools
import time
from urllib.parse import urlsplit

import uvloop


class Caller(asyncio.Protocol):
    """One connection. Answers are separated by their Content-Length, which all of ours have."""

    def __init__(self, request: bytes, times: int, done: asyncio.Future[None]) -> None:
        self._request = request
        self._left = times
        self._done = done
        self._have = b""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # uvloop's is none
        self._transport = transport
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._have += data
        head, found, body = self._have.partition(b"\r\n\r\n")
        if not found:
            return
        at = head.index(b"content-length: ") + 16
        if len(body) < int(head[at : head.find(b"\r\n", at) if b"\r\n" in head[at:] else None]):
            return
        assert head.startswith(b"HTTP/1.1 20"), self._have
        self._have = b""
        self._left -= 1
        if self._left:
            self._transport.write(self._request)
        else:
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the protocol has it
        if not self._done.done():
            self._done.set_result(None)


def request(path: str, body: bytes, token: str | None) -> bytes:
    key = "" if token is None else f"authorization: Bearer {token}\r\n"
    head = (
        f"POST {path} HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\n{key}content-length: {len(body)}\r\n"
    )
    return head.encode() + b"\r\n" + body


def run(url: str, asked: bytes, connections: int, each: int) -> float:
    """Requests per second."""
    place = urlsplit(url)
    host, port = place.hostname or "", place.port or 80

    async def all_of_them() -> float:
        loop = asyncio.get_running_loop()

        async def round_of(times: int) -> float:
            done = [loop.create_future() for _ in range(connections)]
            began = time.perf_counter()
            for future in done:
                await loop.create_connection(functools.partial(Caller, asked, times, future), host, port)
            await asyncio.gather(*done)
            return connections * times / (time.perf_counter() - began)

        await round_of(max(1, each // 5))  # caches, buffers and the log of the file have their working size then
        return await round_of(each)

    return uvloop.run(all_of_them())
