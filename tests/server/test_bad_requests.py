"""Bad requests of every kind: a problem with a stable code, nothing stored, and the server goes on."""

from __future__ import annotations

import contextlib
import socket
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest

from tampu.server.http import protocol
from tests.conformance.harness import until
from tests.server.conftest import Start
from tests.server.web import JSON, MSGPACK, Web
from tests.servers.http import Server, Stall

PUBLISH = "/v1/queues/jobs/publish"


def _deep(levels: int) -> bytes:
    return b'{"messages":[{"payload":' + b"[" * levels + b"]" * levels + b"}]}"


BODIES: list[tuple[bytes, str, str]] = [
    (b"", JSON, "invalid_message"),
    (b"{", JSON, "invalid_message"),
    (b'{"messages":[{"payload":1}', JSON, "invalid_message"),
    (b"[]", JSON, "invalid_message"),
    (b"null", JSON, "invalid_message"),
    (b'{"messages":{}}', JSON, "invalid_message"),
    (b'{"messages":[{"payload":1,"prioritty":1}]}', JSON, "invalid_message"),
    (b'{"messages":[{"payload":1,"priority":"x"}]}', JSON, "invalid_message"),
    (b'{"messages":[{"payload":1,"priority":1e30}]}', JSON, "invalid_message"),
    (b'{"messages":[{"payload":1,"run_at":"2026-01-01T00:00:00"}]}', JSON, "invalid_message"),
    (b'{"messages":[{"payload":1,"payload_base64":"AA=="}]}', JSON, "invalid_message"),
    (b'{"messages":[{}]}', JSON, "invalid_message"),
    (b'{"messages":[{"payload_base64":"%%"}]}', JSON, "invalid_message"),
    (b'{"messages":[{"payload":"\xff\xfe"}]}', JSON, "invalid_message"),
    (b'{"messages":[{"payload":"\\ud800"}]}', JSON, "invalid_message"),
    (b'{"messages":[{"payload":1e999}]}', JSON, "invalid_message"),
    (b'{"messages":[{"payload":NaN}]}', JSON, "invalid_message"),
    (_deep(5_000), JSON, "invalid_message"),
    (_deep(400_000), JSON, "invalid_message"),
    (_deep(600_000), JSON, "payload_too_large"),
    (b"\xc1", MSGPACK, "invalid_message"),
    (b"\x81\xa8messages", MSGPACK, "invalid_message"),
    (b"\xdf\xff\xff\xff\xff", MSGPACK, "invalid_message"),
    (b"\x81\xa8messages\xdd\xff\xff\xff\xff", MSGPACK, "invalid_message"),
    (b"\x91" * 100_000, MSGPACK, "invalid_message"),
    (b'{"messages":[{"payload":1}]}', MSGPACK, "invalid_message"),
    (msgspec.msgpack.encode({"messages": [{"payload": 1}]}), JSON, "invalid_message"),
    (b'{"messages":[{"payload":1}]}', "text/plain", "unsupported_media_type"),
    (b"a=1", "application/x-www-form-urlencoded", "unsupported_media_type"),
    (b"{}", "garbage", "unsupported_media_type"),
]


@pytest.mark.parametrize(("body", "kind", "code"), BODIES, ids=lambda v: f"{v!r:.40}")
def test_a_bad_body_is_refused_and_nothing_is_stored(web: Web, body: bytes, kind: str, code: str) -> None:
    answer = web.post(PUBLISH, body, content_type=kind)
    assert answer.code == code
    assert web.get("/v1/queues").json["queues"] == []


def test_the_field_of_a_bad_item_is_named(web: Web) -> None:
    answer = web.post(PUBLISH, {"messages": [{"payload": 1}, {"payload": 2, "ttl": "soon"}]})
    assert (answer.code, answer.json["field"]) == ("invalid_message", "ttl")


def test_100_000_items_are_refused_by_every_batch(web: Web) -> None:
    many = 100_000
    bodies: dict[str, Any] = {
        PUBLISH: {"messages": [{"payload": 1}] * many},
        "/v1/settle": {"settlements": [{"verb": "ack", "receipt": "jobs/1.1"}] * many},
        "/v1/extend": {"leases": [{"receipt": "jobs/1.1"}] * many},
        "/v1/messages/cancel": {"ids": ["019b76da-a800-7000-8000-000000000001"] * many},
        "/v1/claim": {"queues": ["jobs"] * many},
    }
    for path, body in bodies.items():
        assert web.post(path, body).code in ("invalid_message", "payload_too_large"), path
    assert web.get("/v1/queues").json["queues"] == []


def test_a_body_over_the_limit_is_refused_before_it_is_read(start: Start) -> None:
    node = start(max_body=10_000)
    web = Web(node.url, node.token)
    assert web.post("/v1/queues/jobs/messages", b"x" * 10_001).code == "payload_too_large"
    host, port, prefix = _place(node)
    with socket.create_connection((host, port), timeout=60) as raw:
        head = f"POST {prefix}/v1/queues/jobs/messages HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {node.token}\r\n"
        raw.sendall(f"{head}content-length: 99999999999\r\n\r\n".encode())
        assert raw.recv(1000).startswith(b"HTTP/1.1 413 ")
    with socket.create_connection((host, port), timeout=60) as raw:
        raw.sendall(f"{head}transfer-encoding: chunked\r\n\r\n".encode() + b"2000\r\n" + b"x" * 0x2000 + b"\r\n")
        raw.sendall(b"2000\r\n" + b"x" * 0x2000 + b"\r\n")
        assert raw.recv(1000).startswith(b"HTTP/1.1 413 ")


def _place(node: Stall) -> tuple[str, int, str]:
    parts = urlsplit(node.url)
    assert parts.hostname
    assert parts.port
    return parts.hostname, parts.port, parts.path


def test_a_payload_over_the_queue_s_limit_is_refused(web: Web) -> None:
    web.request("PATCH", "/v1/queues/jobs/config", {"max_payload": 10})
    answer = web.post("/v1/queues/jobs/messages", b"x" * 11)
    assert (answer.status, answer.code, answer.json["field"]) == (413, "payload_too_large", "payload")


@pytest.mark.parametrize("path", ["/v1/queues/a%20b/messages", "/v1/queues/%ff/messages", "/v1/queues/a%2Fb/messages"])
def test_a_bad_queue_name_in_the_path_is_refused(web: Web, path: str) -> None:
    assert web.post(path, b"1").code in ("invalid_message", "not_found", "method_not_allowed")


def test_bad_parameters_are_problems(web: Web) -> None:
    for path in (
        "/v1/queues/jobs/messages?limit=0",
        "/v1/queues/jobs/messages?limit=x",
        "/v1/queues/jobs/messages?state=sleeping",
        "/v1/queues/jobs/messages?labels=[1]",
        "/v1/queues/jobs/messages?created_after=2026-01-01T00:00:00",
        "/v1/journal?after=x",
        "/v1/journal?limit=0",
        "/v1/messages/nonsense",
        "/v1/messages/nonsense/result?wait=-1",
        "/v1/queues/b%20d/stats",
    ):
        assert web.get(path).code == "invalid_message", path
    assert web.post("/v1/queues/jobs/messages?nope=1", b"1").code == "invalid_message"
    assert web.post("/v1/queues/jobs/messages?key=%ff", b"1").code == "invalid_message"
    assert web.post("/v1/queues/jobs/messages", b"1", tampu_priority="high").json["field"] == "priority"
    assert web.post("/v1/queues/jobs/messages", b"1", tampu_run_at="tomorrow").json["field"] == "run_at"
    assert web.post("/v1/queues/jobs/messages", b"{", content_type=JSON).json["field"] == "payload"
    assert web.get("/v1/nowhere").code == "not_found"
    assert web.request("PUT", "/v1/claim", {}).code == "method_not_allowed"
    assert web.get("/v1/queues/jobs/stats").status == 404, "nothing was stored"


@pytest.fixture
def server(tmp_path: Any) -> Any:
    made = Server(url=str(tmp_path / "jobs.db"), max_headers=4096)
    yield made
    made.stop()


@pytest.fixture
def hasty(tmp_path: Any) -> Any:
    """A server that does not wait long for the rest of a request."""
    made = Server(url=str(tmp_path / "jobs.db"), read_timeout=3)
    yield made
    made.stop()


def _raw(server: Server, *parts: bytes) -> bytes:
    place = urlsplit(server.url)
    with socket.create_connection((place.hostname or "", place.port or 0), timeout=60) as raw:
        for part in parts:
            raw.sendall(part)
        answer = b""
        while chunk := raw.recv(65_536):
            answer += chunk
        return answer


def test_what_is_not_http_is_refused(server: Server) -> None:
    answer = _raw(server, b"\x16\x03\x01nonsense\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"invalid_message" in answer


def test_huge_headers_are_refused(server: Server) -> None:
    for head in (
        b"GET /health HTTP/1.1\r\nhost: x\r\nx-big: " + b"x" * 5000 + b"\r\nconnection: close\r\n\r\n",
        b"GET /health HTTP/1.1\r\nhost: x\r\nx-endless: " + b"x" * 5000,
        b"GET /" + b"x" * 5000,
        b"GET /health HTTP/1.1\r\nhost: x\r\n" + b"a: b\r\n" * 1000 + b"connection: close\r\n\r\n",
    ):
        assert _raw(server, head).startswith(b"HTTP/1.1 431 "), head[:40]


@pytest.mark.parametrize("trailer", [b"x-a: " + b"y" * 4000 + b"\r\n", b"y" * 4000], ids=["many", "one without end"])
def test_trailers_are_not_read_for_ever(server: Server, trailer: bytes) -> None:
    place = urlsplit(server.url)
    head = b"POST /v1/claim HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n0\r\nx-b: "
    with socket.create_connection((place.hostname or "", place.port or 0), timeout=60) as raw:
        raw.sendall(head)
        with pytest.raises(OSError):  # noqa: PT011 - a broken pipe or a reset: the connection was closed
            raw.sendall(trailer * 20_000)


def test_too_many_trailers_of_a_request_that_waits_are_refused(server: Server) -> None:
    place = urlsplit(server.url)
    head = f"POST /v1/claim HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {server.token}\r\n"
    with socket.create_connection((place.hostname or "", place.port or 0), timeout=60) as raw:
        raw.sendall(head.encode() + b"transfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n")
        until(lambda: server.state.authenticator.key_cache.used_since(0))
        raw.sendall(b"x-a: " + b"y" * 5000)
        assert raw.recv(1000).startswith(b"HTTP/1.1 431 ")


def test_a_trailer_is_no_header(server: Server) -> None:
    head = (
        b"POST /v1/queues/jobs/messages HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n"
    )
    answer = _raw(server, head + b"1\r\n1\r\n0\r\nauthorization: Bearer " + server.token.encode() + b"\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 401 ")


def test_a_body_in_many_small_chunks_arrives(server: Server) -> None:
    """What is between them is more than headers may be, and no headers."""
    head = f"POST /v1/queues/jobs/messages HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {server.token}\r\n"
    answer = _raw(
        server,
        head.encode() + b"transfer-encoding: chunked\r\nconnection: close\r\n\r\n",
        *[b"1;x=%s\r\n1\r\n" % (b"y" * 50)] * 200,
        b"0\r\nx-a: b\r\n\r\n",
    )
    assert answer.startswith(b"HTTP/1.1 201 ")


@pytest.mark.parametrize("path", ["/v1/session", "/signin", "/tenant"])
def test_who_has_not_said_who_they_are_can_send_little(web: Web, path: str) -> None:
    assert web.as_key(None).post(path, b"x" * 5000, content_type=JSON).status == 413


def test_a_client_that_does_not_go_on_is_let_go(hasty: Server) -> None:
    head = f"POST /v1/claim HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {hasty.token}\r\nconnection: close\r\n"
    begun = (b"", b"GET /health HTTP/1.1\r\nhost", head.encode() + b"content-length: 10\r\n\r\n{")
    with ThreadPoolExecutor(3) as pool:
        answers = list(pool.map(lambda part: _raw(hasty, part), begun))
    assert [answer[:13] for answer in answers] == [b"", b"HTTP/1.1 408 ", b"HTTP/1.1 408 "]


def test_a_client_that_does_not_read_its_answer_is_let_go(hasty: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    stuck: list[Any] = []
    pause = protocol._Protocol.pause_writing

    def noting(self: Any) -> None:
        stuck.append(self)
        pause(self)

    monkeypatch.setattr(protocol._Protocol, "pause_writing", noting)
    web = Web(hasty.url, hasty.token)
    for _ in range(40):
        web.post("/v1/queues/jobs/messages", b"x" * 200_000)
    place = urlsplit(hasty.url)
    with socket.socket() as raw:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        raw.connect((place.hostname, place.port))
        head = f"GET /v1/queues/jobs/messages HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {hasty.token}\r\n\r\n"
        raw.sendall(head.encode())
        until(lambda: stuck)
        until(lambda: stuck[0] not in hasty.running._server.server_state.connections)


def test_two_requests_in_one_read_are_both_answered(server: Server) -> None:
    one = b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n"
    last = b"GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
    assert _raw(server, one + last).count(b"200 OK") == 2


@pytest.mark.parametrize("length", ["content-length: 1000000000", "transfer-encoding: chunked"])
def test_the_rest_of_a_refused_body_is_not_read(start: Start, length: str) -> None:
    """Whoever sends it may not even have a key. The answer arrives, then the connection ends."""
    node = start()
    host, port, prefix = _place(node)
    with socket.create_connection((host, port), timeout=60) as raw:
        raw.sendall(f"POST {prefix}/v1/queues/jobs/messages HTTP/1.1\r\nhost: x\r\n{length}\r\n\r\n".encode())
        assert raw.recv(1000).startswith(b"HTTP/1.1 401 ")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 64 << 10)
        sent, part = 0, b"10000\r\n" + b"x" * 65536 + b"\r\n"
        with contextlib.suppress(ConnectionError):  # it ends when the server closes the connection
            while sent < 200 << 20:
                sent += raw.send(part)
    assert sent < 50 << 20, "the server reads on"


def test_a_small_rest_is_read_and_the_connection_goes_on(start: Start) -> None:
    node = start()
    host, port, prefix = _place(node)
    with socket.create_connection((host, port), timeout=60) as raw:
        for _ in range(2):
            head = f"POST {prefix}/v1/queues/jobs/messages HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\n"
            raw.sendall(head.encode())
            assert raw.recv(1000).startswith(b"HTTP/1.1 401 ")
            raw.sendall(b"x" * 1000)


def test_a_request_after_a_large_one_has_a_head_of_its_own(start: Start) -> None:
    """Sent without waiting for the answer, so that both arrive in the same read."""
    node = start()
    host, port, prefix = _place(node)

    def publish(body: bytes, more: str = "") -> bytes:
        head = f"POST {prefix}/v1/queues/jobs/messages HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {node.token}\r\n"
        return f"{head}{more}content-length: {len(body)}\r\n\r\n".encode() + body

    second = publish(b"2")
    with socket.create_connection((host, port), timeout=60) as raw:
        raw.sendall(publish(b"1" * 50_000) + second[:20])
        answers = raw.recv(4000)
        assert answers.startswith(b"HTTP/1.1 201 ")
        raw.sendall(second[20:])
        assert raw.recv(4000).startswith(b"HTTP/1.1 201 ")
        large = "".join(f"x-{n}: {'y' * 1000}\r\n" for n in range(40))
        raw.sendall(publish(b"1" * 50_000) + publish(b"2", large))
        answers = b""
        while answers.count(b"HTTP/1.1 ") < 2:
            answers += raw.recv(4000)
        assert b"HTTP/1.1 431 " in answers
    with socket.create_connection((host, port), timeout=60) as raw:  # its head arrives in two parts
        third = publish(b"3", large)
        raw.sendall(publish(b"1" * 50_000) + third[:20_000])
        assert raw.recv(4000).startswith(b"HTTP/1.1 201 ")
        raw.sendall(third[20_000:])
        assert raw.recv(4000).startswith(b"HTTP/1.1 431 ")
