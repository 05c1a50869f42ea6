"""A connection to a server breaks while a unit is under way: all of the unit takes effect or nothing, and once."""

from __future__ import annotations

import http.client
import threading
import urllib.parse
from collections.abc import Callable, Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import tampu
from tests.conformance.dying import ALL, NOTHING, Found, found, send_unit
from tests.faults.test_kill_units import URLS
from tests.servers.http import Stall

POINTS = {"before the request": NOTHING, "before the answer": ALL, "inside the answer": ALL, "after the answer": ALL}
"""Where the connection breaks, and what there is of the unit then."""


class Proxy(ThreadingHTTPServer):
    """Passes requests on to a server. The connection of the next unit breaks at ``breaks``; then ``on_break`` looks."""

    daemon_threads = True

    def __init__(self, server: str) -> None:
        self._server = urllib.parse.urlsplit(server)
        self.breaks: str | None = None
        self.on_break: Callable[[], Any]
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}{self._server.path}"
        self._thread = threading.Thread(target=self.serve_forever, args=(0.01,))
        self._thread.start()

    def take_break(self, path: str) -> str | None:
        if not path.endswith("/v1/atomic"):
            return None
        point, self.breaks = self.breaks, None
        return point

    def request(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> tuple[int, Any, bytes]:
        connection = http.client.HTTPConnection(self._server.hostname or "", self._server.port, timeout=60)
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()
        finally:
            connection.close()

    def stop(self) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Proxy

    def log_message(self, *_: Any) -> None:
        pass

    def pass_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        point = self.server.take_break(self.path)
        self.close_connection = point is not None
        if point == "before the request":
            self.server.on_break()
            return
        status, headers, answer = self.server.request(self.command, self.path, body, dict(self.headers))
        if point is not None:  # here, while the client waits
            self.server.on_break()
        if point == "before the answer":
            return
        self.send_response_only(status)
        self.send_header("content-type", headers["content-type"])
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer[: len(answer) // 2] if point == "inside the answer" else answer)

    do_GET = do_POST = do_PUT = pass_on


@pytest.fixture(params=["file", "postgres", "redis"])
def stall(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stall]:
    made = Stall(url=URLS[request.param](tmp_path), key_file=tmp_path / "key")
    yield made
    made.stop()


@pytest.fixture
def proxy(stall: Stall) -> Iterator[Proxy]:
    made = Proxy(stall.url)
    yield made
    made.stop()


def look(store: tampu.Store, nth: int, seen: list[Found]) -> None:
    seen.append(found(store, nth))


def test_a_unit_over_a_connection_that_breaks_takes_effect_once(stall: Stall, proxy: Proxy) -> None:
    direct = tampu.Store(stall.core, "default", on_close=lambda: None)
    for nth, (point, expected) in enumerate(POINTS.items()):
        direct.publish(f"jobs-{nth}", "work")
        (lease,) = direct.claim(f"jobs-{nth}", lease=86_400)
        seen: list[Found] = []
        proxy.breaks, proxy.on_break = point, partial(look, direct, nth, seen)
        with tampu.open(proxy.url, token=stall.token) as store:
            ids = send_unit(store, nth, lease.receipt)  # the client sends it again by itself
        assert seen == [expected], point
        assert found(direct, nth) == ALL
        with tampu.open(proxy.url, token=stall.token) as another:  # as if the first one had died
            assert send_unit(another, nth, lease.receipt) == ids
        assert found(direct, nth) == ALL
    published = [t for t in direct.journal(limit=1000).transitions if t.verb == "publish"]
    assert len(published) == 4 * len(POINTS)
