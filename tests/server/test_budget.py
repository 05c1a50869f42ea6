"""What a node gives to all callers together: each limit is pushed over, seen in the metrics, and free again."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest

from tampu.server.http.request import HttpRequest
from tampu.server.listings import THREADS
from tests.conformance.harness import until
from tests.server.conftest import Start
from tests.server.event_client import Listening
from tests.server.test_metrics import Scrape
from tests.server.web import Web
from tests.servers.http import Server, Stall


def used(node: Stall | Server, of: str) -> int:
    return int(getattr(node.state.budget, of).used)


def seen(web: Web, of: str) -> tuple[float, float, float]:
    """(in use, limit, refused) by the metrics"""
    scrape = Scrape(web)
    names = ("tampu_budget_used", "tampu_budget_limit", "tampu_budget_refused_total")
    return tuple(scrape.of(name, of=of) for name in names)  # type: ignore[return-value]  # three


def test_bytes_of_bodies(start: Start) -> None:
    node = start(max_body=100_000, max_body_bytes=150_000)
    web = Web(node.url, node.token)
    at = urlsplit(node.url)
    head = f"POST {at.path}/v1/queues/jobs/messages HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {node.token}\r\n"
    body = b"x" * 90_000
    for length in ("Content-Length: 90000", "Transfer-Encoding: chunked"):
        parts = [body] if "Content" in length else [b"%x\r\n%s\r\n" % (90_000, body), b"0\r\n\r\n"]
        with socket.create_connection((at.hostname, at.port), timeout=60) as raw:
            raw.sendall(f"{head}{length}\r\n\r\n".encode() + parts[0][:80_000])
            until(lambda: used(node, "body_bytes") > 64 << 10)
            refused = web.post("/v1/queues/jobs/messages", body)
            assert (refused.code, refused.status) == ("unavailable", 503)
            assert web.post("/v1/queues/jobs/messages", body[:1000]).status == 201, "small ones are not counted"
            in_use, most, count = seen(web, "body_bytes")
            assert in_use > 64 << 10
            assert (most, count > 0) == (150_000, True)
            raw.sendall(parts[0][80_000:] + b"".join(parts[1:]))
            assert raw.recv(100).startswith(b"HTTP/1.1 201 ")
        until(lambda: used(node, "body_bytes") == 0)
        assert web.post("/v1/queues/jobs/messages", body).status == 201


def test_bytes_of_a_body_without_a_length_count_as_they_arrive(start: Start) -> None:
    node = start()
    parts, held = [bytes(40_000)] * 3, []

    async def receive() -> dict[str, Any]:
        held.append(used(node, "body_bytes"))
        return {"type": "http.request", "body": parts.pop(), "more_body": bool(parts)}

    request = HttpRequest(node.state, {"type": "http", "method": "POST", "headers": []}, receive)
    assert len(asyncio.run(request.body())) == 120_000
    assert held == [0, 0, 80_000]
    assert used(node, "body_bytes") == 120_000
    request.release()
    assert used(node, "body_bytes") == 0


def test_polls(start: Start) -> None:
    node = start(max_polls=1)
    web = Web(node.url, node.token)
    id = web.post("/v1/queues/other/messages", {"n": 1}).json["id"]
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(web.post, "/v1/claim", {"queues": "jobs", "wait": 50})
        until(lambda: used(node, "polls") == 1)
        assert web.post("/v1/claim", {"queues": "jobs", "wait": 1}).code == "unavailable"
        assert web.get(f"/v1/messages/{id}/result?wait=1").code == "unavailable"
        assert web.post("/v1/claim", {"queues": "jobs"}).status == 200, "this one does not wait"
        assert seen(web, "polls") == (1, 1, 2)
        web.post("/v1/queues/jobs/messages", {"n": 1})
        assert len(waiting.result(60).json["leases"]) == 1
    until(lambda: used(node, "polls") == 0)


def test_streams(start: Start) -> None:
    node = start(max_streams=1)
    web = Web(node.url, node.token)

    async def work() -> None:
        headers = {"authorization": f"Bearer {node.token}"}
        async with aiohttp.ClientSession(headers=headers) as session, session.ws_connect(f"{node.url}/v1/stream"):
            with pytest.raises(aiohttp.WSServerHandshakeError, match="503"):
                await session.ws_connect(f"{node.url}/v1/stream")
            assert await asyncio.to_thread(seen, web, "streams") == (1, 1, 1)

    asyncio.run(work())
    until(lambda: used(node, "streams") == 0)


def test_feeds(start: Start) -> None:
    node = start(max_feeds=1)
    web = Web(node.url, node.token)
    feed = Listening(node.url, node.token)
    try:
        until(lambda: used(node, "feeds") == 1)
        assert web.get("/v1/events").code == "unavailable"
        assert seen(web, "feeds") == (1, 1, 1)
    finally:
        feed.close()
    until(lambda: used(node, "feeds") == 0)
    assert web.get("/v1/events?seconds=0").status == 200
    assert web.get("/v1/events?after=nonsense").code == "invalid_message"
    until(lambda: used(node, "feeds") == 0)


def test_listings_and_reads_of_spark(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    node = start(max_listings=1)
    web = Web(node.url, node.token)
    go = threading.Event()
    stats = node.core.engine.stats

    def slowly(*arguments: Any) -> Any:
        assert go.wait(60)
        return stats(*arguments)

    monkeypatch.setattr(node.core.engine, "stats", slowly)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(web.get, "/v1/stats")
        until(lambda: used(node, "listings") == 1)
        assert web.get("/v1/journal").code == "unavailable"
        assert web.get("/v1/spark/place").code == "unavailable"
        assert web.post("/v1/spark/deliveries", {"ids": []}).code == "unavailable"
        assert seen(web, "listings") == (1, 1, 3)
        go.set()
        assert waiting.result(60).status == 200
    until(lambda: used(node, "listings") == 0)
    for _ in range(2):
        assert web.get("/v1/spark/place").status == 200
        assert web.post("/v1/spark/deliveries", {"ids": []}).status == 200
        until(lambda: used(node, "listings") == 0)


def test_threads(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is beyond them waits."""
    node = start()
    web = Web(node.url, node.token)
    keys = [web.as_key(web.key("view")) for _ in range(THREADS // 2 + 1)]
    go = threading.Event()
    running = Counter[bool]()
    stats = node.core.engine.stats

    def slowly(*arguments: Any) -> Any:
        running[True] += 1
        assert go.wait(60)
        return stats(*arguments)

    monkeypatch.setattr(node.core.engine, "stats", slowly)
    with ThreadPoolExecutor(2 * len(keys)) as pool:
        waiting = [pool.submit(key.get, "/v1/stats") for key in keys for _ in range(2)]
        until(lambda: used(node, "listings") == 2 * len(keys))
        assert running[True] == THREADS
        assert seen(web, "threads") == (THREADS, THREADS, 0)
        go.set()
        assert {each.result(60).status for each in waiting} == {200}
    until(lambda: used(node, "threads") == 0)


def test_connections(tmp_path: Path) -> None:
    server = Server(url=str(tmp_path / "jobs.db"), max_connections=3)
    try:
        at = urlsplit(server.url)
        open = [socket.create_connection((at.hostname, at.port), timeout=60) for _ in range(2)]
        until(lambda: used(server, "connections") == 2)
        with socket.create_connection((at.hostname, at.port), timeout=60) as third:
            third.sendall(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n")
            assert third.recv(100).startswith(b"HTTP/1.1 503 ")
        for each in open:
            each.close()
        until(lambda: used(server, "connections") == 0)
        assert Web(server.url).get("/health").status == 200
        until(lambda: used(server, "connections") == 0)
        assert seen(Web(server.url), "connections") == (1, 3, 1), "the one that reads this is open"
    finally:
        server.stop()
