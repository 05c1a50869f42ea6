"""A worker's stream over HTTP when the server, or something before it, misbehaves: it comes back, or says why not."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import msgspec
import pytest
from aiohttp import web

import tampu
from tampu.client.stream import WireStream
from tampu.wire import frames
from tests.conformance.harness import until

ME = {"tenant": "default", "name": "x", "permissions": ["consume"], "durability": "full", "version": "1"}
Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Proxy:
    """Something that answers as a server does, but for what a test says."""

    def __init__(self) -> None:
        self.me: Answer = self.is_known
        self.stream: Answer = self.opens_and_breaks
        self.handshakes = 0
        self._up = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        assert self._up.wait(60)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        app = web.Application()
        app.router.add_get("/v1/me", self._me)
        app.router.add_get(frames.PATH, self._handshake)
        runner = web.AppRunner(app, shutdown_timeout=0.1)  # 0 would be without a limit
        self._loop.run_until_complete(runner.setup())
        self._loop.run_until_complete(web.TCPSite(runner, "127.0.0.1", 0).start())
        self.url = "http://{}:{}".format(*runner.addresses[0][:2])
        self._up.set()
        self._loop.run_forever()
        self._loop.run_until_complete(runner.cleanup())
        self._loop.close()

    async def _me(self, request: web.Request) -> web.StreamResponse:
        return await self.me(request)

    async def _handshake(self, request: web.Request) -> web.StreamResponse:
        self.handshakes += 1
        return await self.stream(request)

    async def is_known(self, request: web.Request) -> web.StreamResponse:
        binary = "msgpack" in request.headers.get("accept", "")
        encode = msgspec.msgpack.encode if binary else msgspec.json.encode
        kind = "application/msgpack" if binary else "application/json"
        return web.Response(body=encode(ME), content_type=kind)

    async def opens_and_breaks(self, request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.receive()
        await socket.send_bytes(frames.write(frames.Opened()))
        return socket

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(60)


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    made = Proxy()
    yield made
    made.stop()


def answers(status: int, body: Any = None, **headers: str) -> Answer:
    async def answer(_: web.Request) -> web.StreamResponse:
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        return web.Response(status=status, body=msgspec.json.encode(body), headers=given)

    return answer


async def breaks(request: web.Request) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


PROBLEM = {"type": "t", "title": "t", "status": 429, "detail": "slow down", "code": "rate_limited", "retry_after": 0.01}


@pytest.mark.parametrize(
    ("handshake", "me"),
    [
        (answers(403), breaks),
        (answers(401), answers(503, "starting")),
        (answers(403), answers(200, "welcome")),
        (answers(429), answers(429, PROBLEM)),
        (answers(502), breaks),
    ],
    ids=["me breaks", "me is away", "me is a page", "too many", "a bad gateway"],
)
def test_a_stream_comes_back_when_it_was_turned_away_for_a_while(proxy: Proxy, handshake: Answer, me: Answer) -> None:
    with tampu.open(proxy.url, token="x") as store, store.stream("jobs") as stream:
        proxy.stream, proxy.me = handshake, me
        seen = proxy.handshakes
        until(lambda: proxy.handshakes >= seen + 2)
        assert stream.next(0) is None
        proxy.stream, proxy.me = proxy.opens_and_breaks, proxy.is_known
        opened = proxy.handshakes
        until(lambda: proxy.handshakes > opened)
        assert stream.next(0) is None
        stream._closed = True  # nobody is there to say goodbye to


def test_a_stream_that_ends_by_a_mistake_says_so(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise KeyError("a defect")

    with tampu.open(proxy.url, token="x") as store, store.stream("jobs") as stream:
        assert isinstance(stream, WireStream)
        monkeypatch.setattr(stream, "_use_connection", broken)
        with pytest.raises(tampu.TampuError, match="a defect"):
            stream.next(60)
        with pytest.raises(tampu.TampuError, match="a defect"):
            stream.next(60)


def test_a_stream_whose_writing_ends_by_a_mistake_says_so(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*_: Any) -> None:
        raise KeyError("a defect")

    with tampu.open(proxy.url, token="x") as store:
        monkeypatch.setattr(WireStream, "_write", broken)
        with pytest.raises(tampu.TampuError, match="a defect"), store.stream("jobs") as stream:
            stream.next(60)
