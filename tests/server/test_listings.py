"""Listings have threads of their own and a share for each key: whoever lists delays nobody else."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

import pytest

from tampu.server import listings
from tests.conformance.harness import FakeClock, until
from tests.server.conftest import Start
from tests.server.web import Web
from tests.servers.http import Stall

LIST = "/v1/queues/slow/messages"


class Slow:
    """Reads of the queue ``slow`` take until `go` is set."""

    def __init__(self, stall: Stall, monkeypatch: pytest.MonkeyPatch) -> None:
        self.go = threading.Event()
        self.begun = 0
        page = stall.core.engine.page

        def slowly(tenant: str, queue: str, *more: Any) -> Any:
            if queue == "slow":
                self.begun += 1
                assert self.go.wait(60)
            return page(tenant, queue, *more)

        monkeypatch.setattr(stall.core.engine, "page", slowly)


@pytest.fixture
def slow(stall: Stall, web: Web, monkeypatch: pytest.MonkeyPatch) -> Iterator[Slow]:
    for queue in ("slow", "fast"):
        web.post(f"/v1/queues/{queue}/messages", {"n": 1})
    made = Slow(stall, monkeypatch)
    yield made
    made.go.set()


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(40) as made:
        yield made


def test_nothing_waits_behind_listings(stall: Stall, web: Web, slow: Slow, pool: ThreadPoolExecutor) -> None:
    keys = [web.as_key(web.key("view")) for _ in range(5)]
    late = web.key("publish,view")
    waiting = [pool.submit(keys[n % 5].get, LIST) for n in range(20)]
    until(lambda: slow.begun == listings.THREADS)
    assert web.get("/ready").status == 200
    assert web.as_key(late).post("/v1/queues/new/messages", {"n": 1}).status == 201, "a key that is not cached"
    web.request("DELETE", f"/v1/keys/{late.split('_')[1]}")
    until(lambda: web.as_key(late).get("/v1/me").status == 401)
    slow.go.set()
    assert {each.result(60).status for each in waiting} == {200}


def test_a_key_has_a_share_and_the_others_theirs(web: Web, slow: Slow, pool: ThreadPoolExecutor) -> None:
    greedy, other = (web.as_key(web.key("view")) for _ in range(2))
    most = listings.THREADS_OF_CALLER + listings.MAX_WAITING
    waiting = [pool.submit(greedy.get, LIST) for _ in range(most)]
    until(lambda: slow.begun == listings.THREADS_OF_CALLER)
    assert len(other.get("/v1/queues/fast/messages").json["messages"]) == 1
    until(lambda: greedy.get(LIST).status == 429)
    refused = greedy.get(LIST)
    assert (refused.code, refused.headers["retry-after"]) == ("rate_limited", "2")
    slow.go.set()
    assert {each.result(60).status for each in waiting} == {200}
    assert greedy.get(LIST).status == 200


def test_a_client_that_leaves_frees_its_place(stall: Stall, web: Web, slow: Slow) -> None:
    at = urlsplit(stall.url)
    request = f"GET {at.path}{LIST} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {stall.token}\r\n\r\n".encode()
    clients = [socket.create_connection((at.hostname, at.port), timeout=60) for _ in range(10)]
    for client in clients:
        client.sendall(request)
    until(lambda: stall.state.listings.reads == 10)
    assert slow.begun == listings.THREADS_OF_CALLER
    for client in clients:
        client.close()
    until(lambda: stall.state.listings.reads == listings.THREADS_OF_CALLER)  # these read on: a thread has no end
    slow.go.set()
    until(lambda: stall.state.listings.reads == 0)
    assert slow.begun == listings.THREADS_OF_CALLER, "what had not begun was not read"
    assert web.get(LIST).status == 200


def test_listings_cost(start: Start) -> None:
    node = start(clock=FakeClock())
    admin = Web(node.url, node.token)
    admin.post("/v1/queues/jobs/publish", {"messages": [{"payload": 1}] * 1000})
    costs = {
        "/v1/queues/jobs/messages?limit=50": 1,
        "/v1/journal?limit=10": 1,
        "/v1/stats": 1,
        "/v1/queues": 1,
        "/": 2,  # the queues, and what failed
        "/queues/jobs": 1,
    }
    for path, cost in costs.items():
        web = admin.as_key(admin.key("view", rate=1, burst=2 * cost))
        statuses = [web.get(path).status for _ in range(3)]
        assert statuses == [200, 200, 429], path
    large = admin.as_key(admin.key("view", rate=1, burst=10))
    assert large.get("/v1/queues/jobs/messages?limit=1000").headers["ratelimit-remaining"] == "0"
    assert large.get("/v1/queues/jobs/messages").code == "rate_limited", "a page of 1000 costs eleven"
