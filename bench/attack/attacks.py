"""The attacks. Each takes a server and says what came of it; it raises AssertionError if the server did not hold."""

from __future__ import annotations

import contextlib
import json
import socket
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec

from bench.attack.target import Target, frame

BINARY, CONTINUE, PING, PONG = 2, 0, 9, 10
ATTACKS: dict[str, Callable[[Target, float], str]] = {}
"""By name: (the server, how large the attack is: 1 is all of it)"""


def attack(function: Callable[[Target, float], str]) -> Callable[[Target, float], str]:
    ATTACKS[function.__name__.replace("_", " ")] = function
    return function


def _flood(raw: socket.socket, data: bytes, most: int) -> int:
    """Send until the server closes the connection; returns the bytes it took."""
    sent = 0
    with contextlib.suppress(OSError):
        while sent < most:
            sent += raw.send(data)
    return sent


def _frames(target: Target, first: bytes, frames: bytes, scale: float) -> str:
    with target.stream() as raw:
        raw.sendall(first)
        sent = _flood(raw, frames * 10_000, int(scale * (20 << 20)))
        raw.settimeout(10)
        with contextlib.suppress(ConnectionError):
            while raw.recv(1 << 16):  # pongs, and the reason why it ends
                pass
    return f"closed after at most {sent >> 10} KB"


@attack
def empty_pongs(target: Target, scale: float) -> str:
    return _frames(target, b"", frame(PONG), scale)


@attack
def empty_pings(target: Target, scale: float) -> str:
    return _frames(target, b"", frame(PING), scale)


@attack
def empty_continuations(target: Target, scale: float) -> str:
    return _frames(target, frame(BINARY, last=False), frame(CONTINUE, last=False), scale)


@attack
def a_frame_of_a_gigabyte(target: Target, _scale: float) -> str:
    with target.stream() as raw:
        raw.sendall(frame(BINARY, length=1 << 30))
        code = int.from_bytes(raw.recv(100)[2:4])
    assert code == 1009, code
    return "closed at its head"


def _refused(target: Target, path: str, body: bytes, kind: str, *statuses: int) -> str:
    status, _ = target.request("POST", path, body, content_type=kind)
    assert status in statuses, status
    return f"answered {status}"


@attack
def a_body_of_empty_objects(target: Target, scale: float) -> str:
    body = b'{"messages":[' + b"{}," * int(scale * 10_000_000) + b"{}]}"
    return _refused(target, "/v1/queues/jobs/publish", body, "application/json", 400, 413)


@attack
def a_payload_of_empty_lists(target: Target, scale: float) -> str:
    size = int(scale * 30_000_000)
    nested = b"\xdd" + size.to_bytes(4) + b"\x90" * size
    body = b"\x81\xa8messages\x91\x81\xa7payload" + nested
    return _refused(target, "/v1/queues/jobs/publish", body, "application/msgpack", 400, 413)


@attack
def bodies_of_deep_lists(target: Target, scale: float) -> str:
    body = b'{"messages":[{"payload":' + b"[" * 50_000 + b"]" * 50_000 + b"}]}"
    with ThreadPoolExecutor(8) as pool:
        answers = pool.map(
            lambda _: target.request("POST", "/v1/queues/jobs/publish", body, content_type="application/json")[0],
            range(int(scale * 400) + 1),
        )
        assert set(answers) == {400}
    return "all answered 400"


@attack
def a_body_without_a_key(target: Target, scale: float) -> str:
    most = int(scale * (500 << 20)) + (20 << 20)
    with target.connect() as raw:
        raw.sendall(b"POST /v1/queues/jobs/messages HTTP/1.1\r\nhost: x\r\ncontent-length: 9000000000\r\n\r\n")
        assert b"401" in raw.recv(100)
        sent = _flood(raw, bytes(1 << 16), most)
    assert sent < 20 << 20, sent
    return f"{sent >> 10} KB were taken"


@attack
def half_requests(target: Target, scale: float) -> str:
    clients = [target.connect() for _ in range(int(scale * 300) + 5)]
    for client in clients:
        client.sendall(b"POST /v1/claim HTTP/1.1\r\nhost: x\r\n")
    status, _ = target.request("GET", "/ready", token=None)
    for client in clients:
        client.close()
    assert status == 200
    return f"{len(clients)} waited, others were served"


@attack
def listings_of_large_messages(target: Target, scale: float) -> str:
    for _ in range(int(scale * 10) + 1):
        body = {"messages": [{"payload_base64": "A" * 200_000}] * 20}
        target.request("POST", "/v1/queues/large/publish", body)
    with ThreadPoolExecutor(40) as pool:
        answers = list(
            pool.map(
                lambda _: target.request("GET", "/v1/queues/large/messages?limit=10000"), range(int(scale * 200) + 20)
            )
        )
    assert {status for status, _ in answers} <= {200, 429, 503}
    largest = max(len(raw) for _, raw in answers)
    assert largest < 16 << 20, largest
    refused = sum(status != 200 for status, _ in answers)
    return f"{len(answers) - refused} answered, {refused} refused, no page over {largest >> 20} MB"


@attack
def guessed_keys(target: Target, scale: float) -> str:
    token = "tampu_aaaaaaaaaaaa_" + "b" * 43
    statuses = {target.request("GET", "/v1/me", token=token)[0] for _ in range(int(scale * 500) + 30)}
    assert statuses in ({401, 429}, {429}), statuses  # in a soak, the round before may have used up the attempts
    return "refused, then slowed down"


@attack
def another_queue_by_its_id(target: Target, _scale: float) -> str:
    body = {"messages": [{"payload": "the secret"}]}
    id = json.loads(target.request("POST", "/v1/queues/payroll/publish", body)[1])["messages"][0]["id"]
    key = target.key({"permissions": ["publish"], "queues": ["mail"]})
    batch = {"messages": [{"payload": 1, "id": id}, {"payload": 2}]}
    for path, given in (("messages", b"1"), ("publish", batch)):
        status, raw = target.request("POST", f"/v1/queues/mail/{path}", given, token=key, tampu_id=id)
        assert status == 400, status
        assert b"secret" not in raw
    return "refused, and nothing of it was shown"


@attack
def guessing_ids_from_a_known_one(target: Target, scale: float) -> str:
    body = {"messages": [{"payload": n} for n in range(100)]}
    ids = [m["id"] for m in json.loads(target.request("POST", "/v1/queues/payroll/publish", body)[1])["messages"]]
    known = uuid.UUID(ids[50]).int
    steps = [n << bit for n in range(1, int(scale * 100) + 5) for bit in (0, 22, 54)]
    statuses = {target.request("GET", f"/v1/messages/{uuid.UUID(int=known + step)}")[0] for step in steps}
    assert statuses == {404}, statuses
    return f"{len(steps)} guesses found nothing"


@attack
def signing_in_with_what_the_store_has(target: Target, _scale: float) -> str:
    target.request("POST", "/v1/session", {"key": target.token}, token=None)
    file = target.folder / "tampu.db"
    modes = [oct(part.stat().st_mode & 0o777) for part in (file, file.with_name("tampu.db-wal"))]
    assert modes == ["0o600"] * 2, modes
    import tampu
    from tampu.broker import access

    with tampu.open(file, maintenance=False) as store:
        names = [document.name for document in access.engine(store).all_documents() if document.kind == "session"]
    assert names
    statuses = {target.request("GET", "/v1/me", token=None, cookie=f"tampu_session={name}")[0] for name in names}
    assert statuses == {401}
    return "only hashes, in a file of its owner"


@attack
def metrics_through_a_proxy(target: Target, _scale: float) -> str:
    tries: list[dict[str, Any]] = [{"x_forwarded_for": "203.0.113.7"}, {"host": "a@localhost"}, {"host": "a.example"}]
    statuses = {target.request("GET", "/metrics", token=None, **{"host": "localhost", **given})[0] for given in tries}
    assert statuses == {401}
    return "needs a key"


@attack
def results_that_nobody_can_read(target: Target, _scale: float) -> str:
    target.request("POST", "/v1/queues/odd/messages", b"1")
    (lease,) = json.loads(target.request("POST", "/v1/claim", {"queues": "odd"})[1])["leases"]
    deep = msgspec.Raw(b"\x91" * 100_000 + b"\x90")
    body = msgspec.msgpack.encode({"settlements": [{"verb": "ack", "receipt": lease["receipt"], "result": deep}]})
    return _refused(target, "/v1/settle", body, "application/msgpack", 400)
