"""A client talks to a server that is none of ours: its key goes nowhere else, and no answer is too large for it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgspec
import pytest

import tampu
from tampu.broker import access
from tampu.broker.streams.stream import StreamRequest
from tampu.client import failures, sync_http
from tampu.client.request import Request
from tampu.client.stream import WireStream
from tampu.wire import bodies

TOKEN = "tampu_aaaaaaaaaaaa_" + "b" * 43
ME = msgspec.msgpack.encode(bodies.Me("default", "test", ["publish"], "full", tampu.__version__))


class Hostile:
    def __init__(self) -> None:
        self.seen: list[tuple[str, str | None]] = []
        """(path, Authorization) of each request."""
        self.redirect: str | None = None
        self.status = 200
        self.size = 0
        self.opens = False
        """Answer what every client asks first, which is asked without tasks."""
        hostile = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _answer(self) -> None:
                hostile.seen.append((self.path, self.headers["authorization"]))
                self.rfile.read(int(self.headers["content-length"] or 0))
                opens = hostile.opens and self.path == "/v1/me"
                body = ME if opens else bytes(hostile.size)
                redirect = None if opens else hostile.redirect
                self.send_response(hostile.status if redirect is None else 307)
                if redirect is not None:
                    self.send_header("location", redirect + self.path)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                try:
                    self.wfile.write(body)
                except OSError:
                    self.close_connection = True

            do_GET = do_POST = do_PUT = _answer

            def log_message(self, *_: object) -> None:
                """Quiet."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def servers() -> Iterator[tuple[Hostile, Hostile]]:
    """One that a client opens, and one elsewhere."""
    made = Hostile(), Hostile()
    yield made
    for each in made:
        each.stop()


def publish(url: str, asynchronous: bool) -> None:
    async def go() -> None:
        async with tampu.open_async(url, token=TOKEN) as store:
            await store.publish("jobs", 1)

    if asynchronous:
        asyncio.run(go())
    else:
        with tampu.open(url, token=TOKEN) as store:
            store.publish("jobs", 1)


@pytest.mark.parametrize("asynchronous", [False, True], ids=["threads", "tasks"])
def test_a_redirect_takes_the_key_nowhere(servers: tuple[Hostile, Hostile], asynchronous: bool) -> None:
    first, elsewhere = servers
    first.redirect = elsewhere.url
    first.opens = asynchronous
    with pytest.raises(tampu.TampuError):
        publish(first.url, asynchronous)
    assert {key for _, key in first.seen} == {f"Bearer {TOKEN}"}
    assert elsewhere.seen == []


def test_a_stream_takes_the_key_nowhere(servers: tuple[Hostile, Hostile]) -> None:
    first, elsewhere = servers
    first.redirect = elsewhere.url
    stream = WireStream(first.url, {"authorization": f"Bearer {TOKEN}"}, None, StreamRequest(["jobs"], 1, None, None))
    assert not stream.begin(), "it is no stream of ours"
    assert first.seen[0][1] == f"Bearer {TOKEN}"
    assert {key for _, key in elsewhere.seen} <= {None}


@pytest.mark.parametrize("asynchronous", [False, True], ids=["threads", "tasks"])
def test_an_answer_has_a_bounded_size(
    servers: tuple[Hostile, Hostile], asynchronous: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failures, "MAX_ANSWER", 100_000)
    servers[0].size = 10_000_000
    servers[0].opens = asynchronous
    with pytest.raises(tampu.PayloadTooLarge, match="answer"):
        publish(servers[0].url, asynchronous)


def test_an_error_instead_of_a_long_answer_has_a_bounded_size(
    servers: tuple[Hostile, Hostile], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failures, "MAX_ANSWER", 100_000)
    read: list[int] = []
    readinto = sync_http._Body.readinto

    def noting(self: sync_http._Body, buffer: Any) -> int:
        read.append(readinto(self, buffer))
        return read[-1]

    monkeypatch.setattr(sync_http._Body, "readinto", noting)
    first = servers[0]
    first.opens = True
    with tampu.open(first.url, token=TOKEN) as store:
        first.size, first.status = 10_000_000, 400
        core: Any = access.core(store)
        with pytest.raises(tampu.TampuError):
            core.open(Request("GET", "/v1/spark/journal", bytes))
    assert 0 < sum(read) < 1_000_000
