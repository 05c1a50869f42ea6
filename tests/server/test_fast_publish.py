"""Publishes that take the express are answered as all others, whatever comes between."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest

from tampu.broker import publish_steps
from tampu.model.errors import StorageFull
from tampu.server.http import fast_publish
from tampu.server.http.publish import FastRouteOne
from tests.conformance.harness import until
from tests.server.test_metrics import Scrape
from tests.server.test_publish_steps import Mirror, messages
from tests.server.web import Web
from tests.servers.http import Server

PATH = "/v1/queues/jobs/messages"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    made = Server(url=str(tmp_path / "jobs.db"), read_timeout=60)
    yield made
    with contextlib.suppress(AssertionError):
        made.stop()


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[fast_publish.FastPublish]:
    """Those that took the express."""
    seen: list[fast_publish.FastPublish] = []
    begin = fast_publish.FastPublish.__init__

    def noting(self: fast_publish.FastPublish, *args: Any) -> None:
        seen.append(self)
        begin(self, *args)

    monkeypatch.setattr(fast_publish.FastPublish, "__init__", noting)
    return seen


class Line:
    """A connection, by hand."""

    def __init__(self, server: Server, token: str | None = None, path: str = PATH) -> None:
        self._path = path
        self._token = token or server.token
        place = urlsplit(server.url)
        self._socket = socket.create_connection((place.hostname, place.port), timeout=60)
        self._file = self._socket.makefile("rb")

    def __enter__(self) -> Line:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self._socket.close()

    def request(self, body: bytes = b"{}", *, version: str = "1.1", method: str = "POST", **headers: str) -> bytes:
        lines = [f"{method} {self._path} HTTP/{version}", "host: x", f"authorization: Bearer {self._token}"]
        given = {"content-type": "application/json", "content-length": str(len(body)), **headers}
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in given.items()]
        return "\r\n".join([*lines, "", ""]).encode() + body

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def answer(self) -> tuple[int, dict[str, str], bytes]:
        status = int(self._file.readline().split()[1])
        headers = {}
        while (line := self._file.readline().strip()) != b"":
            name, _, value = line.decode().partition(": ")
            headers[name.lower()] = value
        return status, headers, self._file.read(int(headers.get("content-length", 0)))

    def exchange(self, body: bytes = b"{}", **more: str) -> tuple[int, dict[str, str], bytes]:
        self.send(self.request(body, **more))
        return self.answer()

    def ended(self) -> bool:
        return self._file.read(1) == b""


def _cleared(line: Line, taken: list[fast_publish.FastPublish], body: bytes = b"{}", **headers: str) -> None:
    """Publish until a fast route is open: it may be closed again in any moment."""

    def go() -> bool:
        before = len(taken)
        assert line.exchange(body, **headers)[0] in (200, 201)
        return len(taken) > before

    until(go, 60)


def test_an_express_is_answered_as_others_are(server: Server, taken: list[fast_publish.FastPublish]) -> None:
    with Line(server) as line:
        status, usual, body = line.exchange(b'{"n": 0}')
        assert not taken, "the first opens the fast route"
        _cleared(line, taken)
        answer = line.exchange(b'{"n": 1}')
        assert (answer[0], answer[1].keys()) == (status, usual.keys())
        assert msgspec.json.decode(answer[2]).keys() == msgspec.json.decode(body).keys()
        assert answer[1]["x-request-id"] != usual["x-request-id"]
        web = Web(server.url, server.token)
        found = web.get(f"/v1/messages/{msgspec.json.decode(answer[2])['id']}").json
        assert (found["payload"], found["state"]) == ({"n": 1}, "ready")
        asked = Scrape(web).of("tampu_http_requests_total", route=FastRouteOne.route, status="201")
        assert asked == Scrape(web).of("tampu_published_total", queue="jobs") == len(web.get(PATH).json["messages"])


def test_bad_bodies_are_refused_and_the_line_goes_on(server: Server, taken: list[fast_publish.FastPublish]) -> None:
    with Line(server) as line:
        _cleared(line, taken)
        for body in (b"{", b"\xff", b"[" * 5000):
            status, headers, answer = line.exchange(body)
            assert (status, headers["content-type"]) == (400, "application/problem+json")
            assert msgspec.json.decode(answer)["request_id"] == headers["x-request-id"]
        assert line.exchange()[0] == 201


def test_a_body_in_pieces_arrives_whole(server: Server, taken: list[fast_publish.FastPublish]) -> None:
    with Line(server) as line:
        _cleared(line, taken)
        body = b'"%s"' % (b"x" * 30_000)
        raw = line.request(body)
        for at in range(0, len(raw), 7000):
            line.send(raw[at : at + 7000])
        status, _, answer = line.answer()
        assert status == 201
        assert Web(server.url, server.token).get(f"/v1/messages/{msgspec.json.decode(answer)['id']}").json[
            "payload"
        ] == ("x" * 30_000)
        assert line.exchange(b'"%s"' % (b"x" * 200_000))[0] == 201, "the common way"


def test_a_body_that_does_not_come_is_given_up(server: Server, taken: list[fast_publish.FastPublish]) -> None:
    with Line(server) as line:
        _cleared(line, taken)
        for connection in list(server.running._server.server_state.connections):
            connection.patience = 0.1  # type: ignore[union-attr]  # ours; only now, so that a slow machine has its time
        line.send(line.request(b"{}")[:-1])
        assert line.answer()[0] == 408
        assert line.ended()


def test_pipelined_requests_are_answered_in_their_order(server: Server, taken: list[fast_publish.FastPublish]) -> None:
    with Line(server) as line:
        _cleared(line, taken)
        get = line.request(b"", method="GET", x_request_id="look")
        line.send(line.request(b"1") + get + line.request(b"2", x_request_id="second") + line.request(b"{"))
        answers = [line.answer() for _ in range(4)]
        assert [status for status, _, _ in answers] == [201, 200, 201, 400]
        assert [headers["x-request-id"] for _, headers, _ in answers][1:3] == ["look", "second"]


@pytest.mark.parametrize(
    "headers",
    [
        {"x_request_id": "mine"},
        {"tampu_priority": "5"},
        {"idempotency_key": "k"},
        {"version": "1.0"},
        {"connection": "close"},
    ],
    ids=str,
)
def test_what_is_unusual_takes_the_common_way(
    server: Server, taken: list[fast_publish.FastPublish], headers: dict[str, str]
) -> None:
    with Line(server) as line:
        _cleared(line, taken)
        before = len(taken)
        status, answer, _ = line.exchange(b"1", **headers)
        assert (status, len(taken)) == (201, before)
        assert answer["x-request-id"] == headers.get("x_request_id", answer["x-request-id"])
        if not headers.keys().isdisjoint({"version", "connection"}):
            assert line.ended()


def test_a_revoked_key_and_a_closed_queue_are_refused(server: Server, taken: list[fast_publish.FastPublish]) -> None:
    web = Web(server.url, server.token)
    token = web.key("publish")
    with Line(server, token) as line:
        _cleared(line, taken)
        web.post("/v1/queues/jobs/close")
        until(lambda: line.exchange()[0] == 409, 60)
        web.post("/v1/queues/jobs/resume")
        until(lambda: line.exchange()[0] == 201, 60)
        web.request("DELETE", f"/v1/keys/{token.split('_')[1]}")
        until(lambda: line.exchange()[0] == 401, 60)


def test_a_request_that_was_let_in_before_the_revocation_opens_no_fast_route_after_it(server: Server) -> None:
    web = Web(server.url, server.token)
    token = web.key("publish")
    with Line(server, token) as slow, Line(server, token) as line:
        slow.send(slow.request(b"12")[:-2])
        until(lambda: server.state.authenticator.key_cache.used_since(0).keys() >= {token.split("_")[1]})
        web.request("DELETE", f"/v1/keys/{token.split('_')[1]}")
        until(lambda: line.exchange()[0] == 401, 60)
        slow.send(b"12")
        assert slow.answer()[0] == 401
        assert [line.exchange()[0] for _ in range(3)] == [401] * 3


def test_what_is_under_way_on_a_fast_route_when_its_key_is_revoked_is_not_stored(
    server: Server, taken: list[fast_publish.FastPublish]
) -> None:
    web = Web(server.url, server.token)
    token = web.key("publish")
    with Line(server, token) as slow, Line(server, token) as line:

        def begun() -> bool:
            """Takes the fast route with a request whose body does not come yet."""
            _cleared(slow, taken)
            before = len(taken)
            slow.send(slow.request(b"12")[:-2])
            until(lambda: len(taken) > before or len(server.state.fast_routes) == 0, 60)
            if len(taken) > before:
                return True
            slow.send(b"12")
            assert slow.answer()[0] == 201
            return False

        until(begun)
        web.request("DELETE", f"/v1/keys/{token.split('_')[1]}")
        until(lambda: line.exchange()[0] == 401, 60)
        slow.send(b"77")
        assert slow.answer()[0] == 503, "sent again, it is refused"
        assert 77 not in [m["payload"] for m in web.get(PATH + "?limit=10000").json["messages"]]


def test_errors_of_the_store_are_reported(
    server: Server, taken: list[fast_publish.FastPublish], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_calls: Any) -> Any:
        raise StorageFull("no room")

    with Line(server) as line:
        _cleared(line, taken)
        run = server.state.core.engine.run
        monkeypatch.setattr(server.state.core.engine, "run", full)
        until(lambda: line.exchange()[0] == 507)
        monkeypatch.setattr(server.state.core.engine, "run", lambda calls: [object()] * len(calls))
        until(lambda: line.exchange()[0] == 500)
        monkeypatch.setattr(server.state.core.engine, "run", run)
        assert line.exchange()[0] == 201


def test_a_stop_finishes_what_is_under_way(
    server: Server, taken: list[fast_publish.FastPublish], monkeypatch: pytest.MonkeyPatch
) -> None:
    held, begun = threading.Event(), threading.Event()
    run = server.state.core.engine.run

    def slow(calls: Any) -> Any:
        begun.set()
        assert held.wait(60)
        return run(calls)

    with Line(server) as line:
        _cleared(line, taken)
        monkeypatch.setattr(server.state.core.engine, "run", slow)
        line.send(line.request(b'"last"'))
        assert begun.wait(60)
        ending = threading.Thread(target=server.stop)
        ending.start()
        until(lambda: server.state.polls.stopping)
        held.set()
        assert line.answer()[0] == 201
        assert line.ended()
        ending.join(60)


BATCH = "/v1/queues/jobs/publish"
ID = "01a1e3ce-0a3e-7000-8021-b42987946ea3"


def _batch(*messages: Any) -> bytes:
    return msgspec.json.encode({"messages": messages})


def test_a_batch_on_a_fast_route_is_stored_and_answered_as_others_are(
    server: Server, taken: list[fast_publish.FastPublish]
) -> None:
    with Line(server, path=BATCH) as line:
        usual = line.exchange(_batch({"payload": 1}))
        _cleared(line, taken, _batch())
        stored: list[Any] = []

        def quick() -> bool:
            count = len(taken)
            status, headers, body = line.exchange(_batch({"payload": "a", "id": ID}, {"payload": "b", "priority": 3}))
            assert (status, headers.keys()) == (usual[0], usual[1].keys())
            stored[:] = msgspec.json.decode(body)["messages"]
            return len(taken) > count

        until(quick, 60)
        first, second = stored
        assert (first["id"], second["state"]) == (ID, "ready")
        web = Web(server.url, server.token)
        assert [web.get(f"/v1/messages/{one['id']}").json["payload"] for one in (first, second)] == ["a", "b"]
        again = msgspec.json.decode(line.exchange(_batch({"payload": "a", "id": ID}))[2])["messages"][0]
        assert (again["duplicate"], again["message"]["payload"]) == (True, "a")


@pytest.mark.parametrize("form", ["application/json", "application/msgpack"])
def test_a_bad_batch_is_refused_as_on_the_common_way(
    server: Server, taken: list[fast_publish.FastPublish], form: str
) -> None:
    encode = msgspec.json.encode if form == "application/json" else msgspec.msgpack.encode
    bodies: list[Any] = [
        {}, [], None, {"messages": None}, {"messages": {}}, {"messages": [1]}, {"messages": [{}]}, {"more": 1},
        {"messages": [{"payload": 1, "other": 2}]}, {"messages": [{"payload": 1, "priority": "x"}]},
        {"messages": [{"payload": 1, "id": "x"}]}, {"messages": [{"payload": 1, "type": "no type"}]},
        {"messages": [{"payload": 1, "content_type": "x"}]}, {"messages": [{"payload": 1, "delay": -1}]},
        {"messages": [{"payload": 1, "delay": 1e300}]}, {"messages": [{"payload": 1, "payload_base64": "eA=="}]},
        {"messages": [{"payload": 1, "max_attempts": 0}]}, {"messages": [{"payload": 1}, {"payload": 1, "key": ""}]},
        {"messages": [{"payload": None, "content_type": "text/plain"}]}, {"messages": [{"payload": 1}] * 10_001},
    ]  # fmt: skip
    raw = [*map(encode, bodies), b"", b"{", b"\xff", b"[" * 5000, b"\x91" * 5000, encode({"messages": []}) + b" x"]
    with Line(server, path=BATCH) as line:
        for body in raw:
            if len(body) > 60_000:
                continue
            _cleared(line, taken, encode({"messages": []}), content_type=form)
            quick = line.exchange(body, content_type=form)
            common = line.exchange(body, content_type=form, x_request_id="mine")
            assert quick[0] == common[0] in (200, 400), body[:60]
            answers = [msgspec.json.decode(answer[2]) for answer in (quick, common)]
            assert [answer[1]["content-type"] for answer in (quick, common)] == ["application/problem+json"] * 2
            for one in answers:
                del one["request_id"]
            assert answers[0] == answers[1], body[:60]


def test_the_express_goes_through_steps_that_come_meanwhile(
    server: Server, taken: list[fast_publish.FastPublish]
) -> None:
    web = Web(server.url, server.token)
    with Line(server) as line:
        _cleared(line, taken, b'"plain"')
        with publish_steps.registered(Mirror()):
            before = len(taken)
            while len(taken) == before:  # the route may be closed in any moment
                assert line.exchange(b'"marked"')[0] == 201
            status, _, answer = line.exchange(b'"no"')
            assert (status, msgspec.json.decode(answer)["field"]) == (400, "payload")
        assert line.exchange(b'"plain"')[0] == 201
    assert set(map(str, messages(web, "mirror"))) == {str(("marked", {"marked": "yes"}))}
    assert ("marked", {"marked": "yes"}) in messages(web, "jobs")
