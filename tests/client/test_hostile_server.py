"""A client talks to a server that is none of ours: its key goes nowhere else, and no answer is too large for it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

import tampu
from tampu.broker.streams.stream import StreamRequest
from tampu.client import failures
from tampu.client.stream import WireStream

TOKEN = "tampu_aaaaaaaaaaaa_" + "b" * 43


class Hostile:
    def __init__(self) -> None:
        self.seen: list[tuple[str, str | None]] = []
        """(path, Authorization) of each request."""
        self.redirect: str | None = None
        self.size = 0
        hostile = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _answer(self) -> None:
                hostile.seen.append((self.path, self.headers["authorization"]))
                self.rfile.read(int(self.headers["content-length"] or 0))
                self.send_response(200 if hostile.redirect is None else 307)
                if hostile.redirect is not None:
                    self.send_header("location", hostile.redirect + self.path)
                self.send_header("content-length", str(hostile.size))
                self.end_headers()
                try:
                    self.wfile.write(bytes(hostile.size))
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
    with pytest.raises(tampu.PayloadTooLarge, match="answer"):
        publish(servers[0].url, asynchronous)
