"""What a body costs is known before it is decoded: its bytes, its values, its items."""

from __future__ import annotations

import contextlib
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from tampu.model.errors import InvalidMessage, PayloadTooLarge
from tampu.wire import atomic, bodies, frames, media
from tests.server.web import JSON, MSGPACK, Web
from tests.servers.http import Stall

SIZE = 4 << 20


def repeated(one: bytes, before: bytes, after: bytes) -> bytes:
    return before + b",".join([one] * (SIZE // (len(one) + 1))) + after


def packed(path: tuple[str | int, ...], value: bytes) -> bytes:
    """A value in MessagePack at this path: names of maps, and 0 for lists of one."""
    for name in reversed(path):
        value = b"\x91" + value if name == 0 else b"\x81" + msgspec.msgpack.encode(name) + value
    return value


NESTED = b"\xdd" + SIZE.to_bytes(4) + b"\x90" * SIZE
"""A list of empty lists, in MessagePack: each costs 64 times what it has."""
PAIRS = b"\xdf" + (SIZE // 8).to_bytes(4) + b"".join(b"\xa6%06d\xa0" % n for n in range(SIZE // 8))


def many(one: Any) -> bytes:
    """A list of this, as often as it fits, in MessagePack."""
    raw = msgspec.msgpack.encode(one)
    count = SIZE // len(raw)
    return b"\xdd" + count.to_bytes(4) + raw * count


@pytest.fixture
def peak() -> Iterator[Callable[[], int]]:
    tracemalloc.start()
    yield lambda: tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()


def of_receipt(raw: bytes, **more: str) -> bytes:
    fields = {"verb": "ack", "receipt": "jobs/1", **more}
    head = b"".join(msgspec.msgpack.encode(name) + msgspec.msgpack.encode(value) for name, value in fields.items())
    return bytes([0x80 + len(fields) + 1]) + head + msgspec.msgpack.encode("result") + raw


FRAME = b"\x83\xa2op\xa6settle\xa3seq\x01" + packed(("settlements", 0), of_receipt(NESTED))[1:]


def first_payload(raw: bytes, media_type: str) -> Any:
    return bodies.PUBLISH.read(raw, media_type).messages[0].plain(256 << 10)


@pytest.mark.parametrize(
    ("read", "raw", "media_type"),
    [
        (bodies.PUBLISH.read, repeated(b"{}", b'{"messages":[', b"]}"), JSON),
        (bodies.PUBLISH.read, repeated(b'"a":""', b'{"messages":[{"headers":{', b"}}]}"), JSON),
        (bodies.PUBLISH.read, packed(("messages",), many({"payload": 1})), MSGPACK),
        (bodies.PUBLISH.read, packed(("messages", 0, "headers"), PAIRS), MSGPACK),
        (first_payload, packed(("messages", 0, "payload"), NESTED), MSGPACK),
        (first_payload, repeated(b"[]", b'{"messages":[{"payload":[', b"]}]}"), JSON),
        (bodies.SETTLE.read, repeated(b"[]", b'{"settlements":[{"verb":"ack","receipt":"a","result":[', b"]}]}"), JSON),
        (bodies.SETTLE.read, packed(("settlements", 0), of_receipt(NESTED)), MSGPACK),
        (bodies.SETTLE.read, packed(("settlements",), many({"verb": "ack", "receipt": ""})), MSGPACK),
        (bodies.EXTEND.read, packed(("leases",), many({"receipt": ""})), MSGPACK),
        (bodies.CLAIM.read, packed(("queues",), many("")), MSGPACK),
        (bodies.IDS.read, packed(("ids",), many("")), MSGPACK),
        (atomic.ATOMIC.read, repeated(b"{}", b'{"operations":[{"op":"publish","messages":[', b"]}]}"), JSON),
        (lambda raw, _: frames.WORKER_FRAME.decode(raw), FRAME, MSGPACK),
    ],
    ids=["messages", "headers", "messages-m", "headers-m", "payload-m", "payload", "result", "result-m",
         "settlements-m", "leases-m", "queues-m", "ids-m", "operations", "frame"],
)  # fmt: skip
def test_a_body_is_decoded_into_little_more_than_its_bytes(
    peak: Callable[[], int], read: Callable[[bytes, str], Any], raw: bytes, media_type: str
) -> None:
    """Or refused. The first idea, to decode everything and count then, took 60 times the bytes."""
    with contextlib.suppress(PayloadTooLarge, InvalidMessage, msgspec.ValidationError):
        read(raw, media_type)
    assert peak() < 4 * SIZE


@pytest.mark.parametrize(
    ("text", "values"),
    [
        (b'["a,b,c"]', 1), (b'["\\"", 1, 2]', 3), (b'["\\\\", "[[["]', 2), (b'{"a":{"b":[]}}', 3), (b"[[],[],[]]", 6),
        (b'["\\\\\\",{", 1]', 2), (b'{",":",","{":"["}', 2),
    ],
)  # fmt: skip
def test_separators_in_texts_are_no_values(monkeypatch: pytest.MonkeyPatch, text: bytes, values: int) -> None:
    msgspec.json.decode(text)
    monkeypatch.setattr(media, "MAX_VALUES", values)
    media.check_values(text)
    monkeypatch.setattr(media, "MAX_VALUES", values - 1)
    with pytest.raises(PayloadTooLarge):
        media.check_values(text)


def test_a_large_text_with_many_commas_is_published(web: Web) -> None:
    web.request("PATCH", "/v1/queues/jobs/config", {"max_payload": 2 << 20})
    text = "1,2,3\n" * 200_000
    assert web.post("/v1/queues/jobs/publish", {"messages": [{"payload": text}]}).status == 200
    assert web.get("/v1/queues/jobs/messages").json["messages"][0]["payload"] == text


def test_too_many_values_are_refused(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(media, "MAX_VALUES", 1000)
    refused = web.post("/v1/queues/jobs/publish", {"messages": [{"payload": 1}] * 2000})
    assert refused.code == "payload_too_large"
    assert web.post("/v1/queues/jobs/publish", {"messages": [{"payload": 1}] * 400}).status == 200
    assert web.post("/v1/queues/jobs/messages", [1] * 2000).code == "payload_too_large", "the body is the payload"
    assert web.post("/v1/queues/jobs/messages", [1] * 900).status == 201


@pytest.mark.parametrize("path", ["/v1/claim", "/v1/messages/cancel", "/v1/queues/jobs/purge", "/v1/keys"])
def test_a_body_without_messages_is_small(web: Web, path: str) -> None:
    assert web.post(path, b" " * (1 << 20) + b"{}").code == "payload_too_large"


def test_a_payload_is_no_larger_than_its_queue_takes(web: Web) -> None:
    """Also one that the server does not decode."""
    for body in (b" " * (3 << 20), b"x" * (257 << 10)):
        refused = web.post("/v1/queues/jobs/messages", body, content_type="application/octet-stream")
        assert refused.code == "payload_too_large"
    small = web.post("/v1/queues/jobs/messages", b"x" * (256 << 10), content_type="application/octet-stream")
    assert small.status == 201


def test_large_bodies_are_decoded_off_the_event_loop(web: Web, stall: Stall, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[str] = []
    read = media.Form.read

    def noting(self: media.Form, raw: bytes, kind: str) -> Any:
        threads.append(threading.current_thread().name)
        return read(self, raw, kind)

    monkeypatch.setattr(media.Form, "read", noting)
    assert web.post("/v1/queues/jobs/publish", {"messages": [{"payload": "x" * 200_000}]}).status == 200
    assert web.post("/v1/queues/jobs/publish", {"messages": [{"payload": "x"}]}).status == 200
    assert [name == "tampu-hall" for name in threads] == [False, True]


@pytest.mark.parametrize("kind", [JSON, MSGPACK])
def test_results_are_kept_as_they_were_sent(web: Web, kind: str) -> None:
    encode = msgspec.json.encode if kind == JSON else msgspec.msgpack.encode
    results: list[Any] = [{"a": [1, None, "ä"]}, None, 0, "", [], False]
    ids = []
    for result in results:
        ids.append(web.post("/v1/queues/jobs/messages", {"n": 1}).json["id"])
        (lease,) = web.post("/v1/claim", {"queues": "jobs"}).json["leases"]
        body = {"settlements": [{"verb": "ack", "receipt": lease["receipt"], "result": result}]}
        assert (
            web.post("/v1/settle", encode(body), content_type=kind, accept=JSON).json["outcomes"][0]["state"] == "done"
        )
    assert [web.get(f"/v1/messages/{id}/result").json.get("result") for id in ids] == results


@pytest.mark.parametrize("result", [b"\xc1", b"\xa1\xff", b"\x91" * 2000 + b"\x90"], ids=["bad", "not text", "deep"])
def test_a_result_that_nobody_could_read_is_refused(web: Web, result: bytes) -> None:
    web.post("/v1/queues/jobs/messages", {"n": 1})
    (lease,) = web.post("/v1/claim", {"queues": "jobs"}).json["leases"]
    raw = packed(("settlements", 0), of_receipt(result, receipt=lease["receipt"]))
    assert web.post("/v1/settle", raw, content_type=MSGPACK).code == "invalid_message"
    assert web.get("/v1/queues/jobs/stats").json["counts"]["leased"] == 1


def test_a_result_that_does_not_fit_is_not_decoded(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    web.request("PATCH", "/v1/queues/jobs/config", {"max_payload": 1000})
    web.post("/v1/queues/jobs/messages", {"n": 1})
    (lease,) = web.post("/v1/claim", {"queues": "jobs"}).json["leases"]

    def decode(_: bytes) -> Any:
        raise AssertionError("decoded")

    monkeypatch.setattr("tampu.wire.media._from_msgpack", decode)
    settlement = {"verb": "ack", "receipt": lease["receipt"], "result": "x" * 1100}
    raw = msgspec.msgpack.encode({"settlements": [settlement]})
    assert web.post("/v1/settle", raw, content_type=MSGPACK, accept=JSON).code == "payload_too_large"


def test_a_payload_of_messagepack_is_decoded_when_it_fits() -> None:
    raw = msgspec.msgpack.encode({"messages": [{"payload": {"a": 1}}, {"payload": b"raw", "type": "x"}]})
    one, two = (each.plain(100) for each in bodies.PUBLISH.read(raw, MSGPACK).messages)
    assert (one.payload, two.payload, two.type) == ({"a": 1}, b"raw", "x")
    with pytest.raises(InvalidMessage):
        bodies.BinaryMessage(msgspec.Raw(b"\x91" * 2000 + b"\x90")).plain(10_000)
