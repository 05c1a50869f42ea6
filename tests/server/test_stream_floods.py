"""One worker's stream cannot stop the others: what it sends is parsed in slices, counted, timed and bounded."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
import uvicorn
from uvicorn.server import ServerState as UvicornState

import tampu
from tampu.server.http import stream_protocol
from tampu.server.settings import ServerSettings
from tampu.wire import frames
from tests.server.conftest import Start
from tests.servers.http import Server, Stall

TEXT, BINARY, CONTINUE, CLOSE, PING, PONG = 1, 2, 0, 8, 9, 10


def frame(opcode: int, data: bytes = b"", *, last: bool = True, length: int | None = None) -> bytes:
    """A frame of a client, masked with zeros. ``length`` announces more than there is."""
    size = len(data) if length is None else length
    head = bytes([opcode | (0x80 if last else 0)])
    head += bytes([0x80 | size]) if size < 126 else struct.pack("!BQ", 0x80 | 127, size)
    return head + bytes(4) + data


def upgrade(url: str, token: str = "") -> bytes:
    at = urlsplit(url)
    return (
        f"GET {at.path}{frames.PATH} HTTP/1.1\r\nHost: {at.netloc}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
        f"Authorization: Bearer {token}\r\n\r\n"
    ).encode()


class RawStream:
    """A WebSocket without a client library, which would not send such frames."""

    def __init__(self, url: str, token: str) -> None:
        at = urlsplit(url)
        self.socket = socket.create_connection((at.hostname, at.port), timeout=60)
        self.socket.sendall(upgrade(url, token))
        while b"\r\n\r\n" not in self.socket.recv(4096):
            pass

    def send(self, data: bytes) -> None:
        try:
            self.socket.sendall(data)
        except OSError:  # the server has closed the connection
            return

    def next(self) -> tuple[int, bytes]:
        """(opcode, data) of the next frame that is no pong."""
        while True:
            opcode, length = self._read(2)
            if length == 126:
                (length,) = struct.unpack("!H", self._read(2))
            data = self._read(length)
            if opcode & 15 != PONG:
                return opcode & 15, data

    def close_code(self) -> int:
        opcode, data = self.next()
        assert opcode == CLOSE, "the stream goes on"
        return int.from_bytes(data[:2])

    def _read(self, n: int) -> bytes:
        data = b""
        while len(data) < n:
            more = self.socket.recv(n - len(data))
            assert more, "the connection ended without a reason"
            data += more
        return data


@pytest.fixture
def raw(stall: Stall) -> Iterator[RawStream]:
    made = RawStream(stall.url, stall.token)
    yield made
    made.socket.close()


@pytest.mark.parametrize(
    "flood",
    [frame(PONG) * 2000, frame(PING) * 2000, frame(BINARY, last=False) + frame(CONTINUE, last=False) * 2000],
    ids=["pongs", "pings", "continuations"],
)
def test_frames_without_a_message_end_the_stream(raw: RawStream, flood: bytes) -> None:
    raw.send(flood)
    if flood.startswith(frame(BINARY, last=False)):
        raw.send(frame(CONTINUE, frames.write(frames.Extend(1, []))))
    else:
        raw.send(frame(BINARY, frames.write(frames.Extend(1, []))))
    assert raw.close_code() == 1008


def test_a_stream_that_keeps_itself_alive_goes_on(raw: RawStream) -> None:
    """Also with a message in several frames."""
    raw.send((frame(PING) + frame(PONG)) * 50)
    message = frames.write(frames.Extend(1, []))
    parts = [frame(CONTINUE, message[n : n + 1], last=False) for n in range(1, len(message))]
    raw.send(frame(BINARY, message[:1], last=False) + b"".join(parts) + frame(CONTINUE))
    opcode, data = raw.next()
    assert opcode == BINARY
    assert frames.SERVER_FRAME.decode(data) == frames.Extended(1, [])


def test_many_messages_at_once_are_all_answered(raw: RawStream) -> None:
    n = 2000
    raw.send(b"".join(frame(BINARY, frames.write(frames.Extend(seq, []))) for seq in range(n)))
    answers = [frames.SERVER_FRAME.decode(raw.next()[1]) for _ in range(n)]
    assert answers == [frames.Extended(seq, []) for seq in range(n)]


def test_a_message_is_no_larger_than_max_frame(raw: RawStream) -> None:
    raw.send(frame(BINARY, length=(1 << 20) + 1))
    assert raw.close_code() == 1009


def test_the_client_splits_what_does_not_fit_in_a_frame(tmp_path: Any) -> None:
    server = Server(url=str(tmp_path / "jobs.db"), max_frame=4096)
    try:
        with tampu.open(server.url, token=server.token) as store:
            store.publish_many("jobs", range(20))
            with store.stream("jobs", credit=20) as stream:
                leases = [stream.next(60) for _ in range(20)]
                waiting = [stream.ack(lease, "x" * 1000) for lease in leases if lease is not None]
                assert [done.result(60).state for done in waiting] == ["done"] * 20
            (message,) = [store.publish("jobs", 1)]
            with store.stream("jobs", credit=1) as stream:
                lease = stream.next(60)
                assert lease is not None
                with pytest.raises(tampu.PayloadTooLarge, match="max_frame"):
                    stream.ack(lease, "x" * 5000).result(60)
                assert stream.ack(lease, "x").result(60).state == "done"
            assert store.get(message.id).state == "done"
    finally:
        server.stop()


# -- the protocol alone


class FakeTransport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.reads = True
        self.written = b""
        self.closed = asyncio.Event()

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True

    def write(self, data: Any) -> None:
        self.written += bytes(data)

    def is_closing(self) -> bool:
        return self.closed.is_set()

    def close(self) -> None:
        self.closed.set()

    abort = close


async def opened(app: Any, *, wait: bool = True, **settings: Any) -> tuple[Any, FakeTransport]:
    """A protocol whose handshake is over, or with ``wait=False`` has begun."""
    given = ServerSettings(url="memory://", **settings)
    kind = stream_protocol.stream_protocol_for(given)
    config = uvicorn.Config(app, ws=kind, ws_max_size=given.max_frame, ws_per_message_deflate=False, log_config=None)
    config.load()
    protocol = kind(config, UvicornState(), {})
    transport = FakeTransport()
    protocol.connection_made(transport)
    protocol.data_received(upgrade("http://localhost"))
    while wait and not protocol.handshake_complete:
        await asyncio.sleep(0)
    return protocol, transport


async def accept(_scope: Any, receive: Any, send: Any) -> None:
    await receive()
    await send({"type": "websocket.accept"})
    while (await receive())["type"] != "websocket.disconnect":
        pass


def test_everybody_has_a_turn_while_a_large_chunk_is_parsed() -> None:
    async def work() -> None:
        parsed: list[int] = []
        protocol, transport = await opened(accept)
        kept = protocol.conn.receive_data

        def noting(data: bytes) -> None:
            parsed.append(len(data))
            kept(data)

        protocol.conn.receive_data = noting
        chunk = frame(BINARY, bytes(200_000))
        protocol.data_received(chunk)
        assert sum(parsed) <= 4096, "some 700 empty frames, about 10 ms"
        assert not transport.reads, "no more is read before this is parsed"
        while not transport.reads:
            await asyncio.sleep(0)
        assert sum(parsed) == len(chunk)
        assert max(parsed) <= 4096
        protocol.connection_lost(None)

    asyncio.run(work())


@pytest.mark.parametrize(
    "begun",
    [frame(BINARY, b"half", length=100), frame(BINARY, b"part", last=False), b"\x82"],
    ids=["frame", "message", "head"],
)
def test_what_is_begun_must_arrive_in_time(begun: bytes) -> None:
    async def work() -> None:
        protocol, transport = await opened(accept, read_timeout=0.05)
        protocol.data_received(begun)
        await asyncio.wait_for(transport.closed.wait(), 60)
        assert b"did not arrive in time" in transport.written
        protocol.connection_lost(None)

    asyncio.run(work())


def test_a_stream_between_two_messages_is_not_timed() -> None:
    async def work() -> None:
        protocol, _transport = await opened(accept, read_timeout=0.05)
        protocol.data_received(frame(BINARY, b"half", length=8))
        assert protocol._late is not None
        protocol.data_received(b"half")
        assert protocol._late is None
        protocol.connection_lost(None)

    asyncio.run(work())


def test_a_stream_that_was_not_admitted_has_no_frames(start: Start) -> None:
    """Frames that come with the handshake are counted too."""
    node = start()
    at = urlsplit(node.url)
    with socket.create_connection((at.hostname, at.port), timeout=60) as plain:
        plain.sendall(upgrade(node.url, "nonsense") + frame(PONG) * 1000)
        answer = b""
        while more := plain.recv(4096):
            answer += more
        assert b"401" in answer


def test_frames_before_the_answer_to_the_handshake_end_the_connection() -> None:
    async def silent(_scope: Any, _receive: Any, _send: Any) -> None:
        await asyncio.Event().wait()

    async def work() -> None:
        protocol, transport = await opened(silent, wait=False)
        await asyncio.sleep(0)
        protocol.data_received(frame(PONG) * 1000)
        for _ in range(10):
            await asyncio.sleep(0)
        assert transport.is_closing()
        protocol.connection_lost(None)

    asyncio.run(work())


def test_pings_are_counted_in_the_time_that_a_frame_has() -> None:
    async def work() -> None:
        protocol, transport = await opened(accept)
        for _ in range(5):
            protocol.data_received(frame(PONG) * 150)
            assert not transport.is_closing()
            protocol._control_since -= protocol.patience + 1
        protocol.data_received(frame(PONG) * 300)
        assert transport.is_closing()
        protocol.connection_lost(None)

    asyncio.run(work())
