"""Streams of workers: pushed within credit, settled in a pipeline, kept alive over breaks, ended with their key."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest

import tampu
from tampu.broker.streams.stream import PolledStream
from tampu.client.stream import WireStream
from tampu.server.auth.grants import parse
from tampu.server.auth.key_admin import KeyAdmin
from tampu.server.http import stream_protocol
from tampu.wire import bodies, frames
from tests.conformance.harness import until
from tests.server.conftest import Start
from tests.server.test_metrics import Scrape
from tests.server.web import Web
from tests.servers.http import Server, Stall
from tests.servers.ports import free_port


@pytest.fixture
def stall(start: Start, tmp_path: Path) -> Stall:
    return start(url=str(tmp_path / "jobs.db"))


@pytest.fixture
def store(stall: Stall) -> Iterator[tampu.Store]:
    """Over HTTP."""
    with tampu.open(stall.url, token=stall.token) as queue:
        yield queue


def key(stall: Stall, *grants: str) -> tuple[str, str]:
    made = stall.core.drive(KeyAdmin(stall.core, "*").create("test", [parse(g) for g in grants], tenant="default"))
    return made.token, made.key.id


class Raw:
    """Frames as they are."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.socket = socket

    async def send(self, *said: Any) -> None:
        for one in said:
            await self.socket.send_bytes(frames.write(one))

    async def receive(self) -> Any:
        message = await asyncio.wait_for(self.socket.receive(), 60)
        return frames.SERVER_FRAME.decode(message.data) if message.type is aiohttp.WSMsgType.BINARY else message

    async def quiet(self) -> bool:
        """Does nothing come? Asked after an answer that would have come later."""
        await self.send(frames.Extend(999, []))
        answer = await self.receive()
        return isinstance(answer, frames.Extended) and answer.seq == 999


@asynccontextmanager
async def connected(stall: Stall, token: str | None = None, *, open: bool = True) -> AsyncIterator[Raw]:
    headers = {"authorization": f"Bearer {token or stall.token}"}
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.ws_connect(stall.url + frames.PATH, max_msg_size=0) as socket,
    ):
        raw = Raw(socket)
        if open:
            await raw.send(frames.Open(["jobs"], worker="raw"))
            assert isinstance(await raw.receive(), frames.Opened)
        yield raw


def run(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(work())


# -- the wire


def test_no_more_is_pushed_than_there_is_credit(stall: Stall, store: tampu.Store) -> None:
    store.publish_many("jobs", range(10))

    async def work() -> None:
        async with connected(stall) as raw:
            await raw.send(frames.Ready(3))
            got = 0
            while got < 3:
                got += len((await raw.receive()).leases)
            assert got == 3
            assert await raw.quiet()
            await raw.send(frames.Ready(2))
            assert len((await raw.receive()).leases) == 2
            assert await raw.quiet()

    run(work)
    assert store.stats("jobs").ready == 5


def test_what_is_published_is_pushed_to_who_waits(stall: Stall, store: tampu.Store) -> None:
    async def work() -> None:
        async with connected(stall) as raw:
            await raw.send(frames.Ready(5))
            assert await raw.quiet()
            await asyncio.to_thread(store.publish, "jobs", {"n": 1})
            (lease,) = (await raw.receive()).leases
            assert (lease.message.payload, lease.worker) == (b'{"n":1}', "raw")

    run(work)


def test_answers_come_in_the_order_of_the_questions(stall: Stall, store: tampu.Store) -> None:
    store.publish_many("jobs", range(50))
    leases = store.claim("jobs", limit=50)

    async def work() -> None:
        async with connected(stall) as raw:
            for n, lease in enumerate(leases):
                if n % 3:
                    await raw.send(frames.Settle(n, [bodies.Settlement(verb="ack", receipt=lease.receipt)]))
                elif n % 2:
                    await raw.send(frames.Extend(n, [bodies.ExtendItem(lease.receipt, 60)]))
                else:
                    await raw.send(frames.Settle(n, [bodies.Settlement(verb="ack", receipt="jobs/gone")]))
            answers = [await raw.receive() for _ in leases]
            assert [one.seq for one in answers] == list(range(50))
            assert answers[0].outcomes[0].error is not None
            assert answers[1].outcomes[0].state == "done"
            assert answers[3].leases[0].until is not None

    run(work)


def test_a_question_that_is_refused_leaves_the_others_alone(stall: Stall, store: tampu.Store) -> None:
    store.publish_many("jobs", range(2))
    one, two = store.claim("jobs", limit=2)

    async def work() -> None:
        async with connected(stall) as raw:
            await raw.send(
                frames.Settle(1, [bodies.Settlement(verb="ack", receipt=one.receipt)]),
                frames.Settle(2, [bodies.Settlement(verb="nack", receipt=two.receipt, delay=-1)]),
                frames.Settle(3, [bodies.Settlement(verb="release", receipt=two.receipt)]),
            )
            answers = [await raw.receive() for _ in range(3)]
            assert isinstance(answers[1], frames.Refused)
            assert answers[1].error.code == "invalid_message"
            assert [type(t).__name__ for t in answers] == ["Settled", "Refused", "Settled"]

    run(work)


@pytest.mark.parametrize(
    "frame",
    [b"", b"\xc1", b"{}", frames.write({"op": "dance"}), frames.write({"op": "ready", "n": 0}),
     frames.write({"op": "ready", "n": 1, "x": 1}), frames.write({"op": "ready", "n": 10_000}), "text",
     frames.write({"op": "open", "queues": ["jobs"]}), frames.write({"op": "settle", "seq": "a", "settlements": []})],
)  # fmt: skip
def test_a_bad_frame_ends_the_stream_with_a_reason(stall: Stall, frame: bytes | str) -> None:
    async def work() -> None:
        async with connected(stall) as raw:
            await raw.send(frames.Ready(1))
            if isinstance(frame, str):
                await raw.socket.send_str(frame)
            else:
                await raw.socket.send_bytes(frame)
            ended = await raw.receive()
            assert (raw.socket.close_code, bool(ended.extra)) == (frames.BAD_FRAME, True)

    run(work)


def test_a_stream_says_first_for_which_queues_it_works(stall: Stall) -> None:
    async def work() -> None:
        async with connected(stall, open=False) as raw:
            await raw.send(frames.Ready(1))
            await raw.receive()
            assert raw.socket.close_code == frames.BAD_FRAME
        async with connected(stall, open=False) as raw:
            await raw.send(frames.Open(["bad name"]))
            answer = await raw.receive()
            assert (answer.error.code, answer.seq) == ("invalid_message", None)

    run(work)


def test_only_who_may_consume_gets_a_stream(stall: Stall) -> None:
    async def status(token: str) -> int:
        try:
            async with connected(stall, token):
                return 101
        except aiohttp.WSServerHandshakeError as error:
            return error.status

    async def work() -> None:
        assert await status("tampu_nobody") == 401
        assert await status(key(stall, "view,publish")[0]) == 403
        async with connected(stall, key(stall, "consume:other")[0], open=False) as raw:
            await raw.send(frames.Open(["jobs"]))
            assert (await raw.receive()).error.code == "forbidden"
            await raw.receive()
            assert raw.socket.close_code == frames.FORBIDDEN

    run(work)


def test_other_queues_cannot_be_settled_through_a_stream(stall: Stall, store: tampu.Store) -> None:
    store.publish("secret", 1)
    (lease,) = store.claim("secret")

    async def work() -> None:
        async with connected(stall, key(stall, "consume:jobs")[0]) as raw:
            await raw.send(frames.Settle(1, [bodies.Settlement(verb="ack", receipt=lease.receipt)]))
            assert (await raw.receive()).error.code == "forbidden"

    run(work)
    assert store.stats("secret").leased == 1


def test_revoking_the_key_ends_the_stream(stall: Stall) -> None:
    async def work() -> None:
        token, id = key(stall, "consume")
        async with connected(stall, token) as raw:
            await raw.send(frames.Ready(1))
            await asyncio.to_thread(stall.core.drive, KeyAdmin(stall.core, "*").revoke(id))
            await raw.receive()
            assert raw.socket.close_code == frames.UNAUTHORIZED

    run(work)


@pytest.mark.parametrize("of", ["stream", "poll", "feed"])
def test_bad_keys_of_the_same_address_do_not_keep_what_a_revoked_key_has_begun(start: Start, of: str) -> None:
    stall = start(login_attempts=1)
    token, id = key(stall, "consume,view")

    async def guess(session: aiohttp.ClientSession) -> int:
        async with session.get(f"{stall.url}/v1/me", headers={"authorization": "Bearer nonsense"}) as answer:
            return answer.status

    async def ended(session: aiohttp.ClientSession) -> Any:
        if of == "stream":
            async with connected(stall, token) as raw:
                await raw.receive()
                return raw.socket.close_code
        mine = {"authorization": f"Bearer {token}"}
        asked: dict[str, Any] = {"json": {"queues": "jobs", "wait": 50}} if of == "poll" else {}
        method, path = ("POST", "/v1/claim") if of == "poll" else ("GET", "/v1/events")
        async with session.request(method, stall.url + path, headers=mine, **asked) as response:
            return "unauthorized" in await response.text()

    async def work() -> None:
        async with aiohttp.ClientSession() as session:
            begun = asyncio.create_task(ended(session))
            await asyncio.to_thread(until, lambda: len(stall.state.polls))
            assert [await guess(session) for _ in range(3)] == [401, 429, 429]
            await asyncio.to_thread(stall.core.drive, KeyAdmin(stall.core, "*").revoke(id))
            assert await asyncio.wait_for(begun, 60) == (frames.UNAUTHORIZED if of == "stream" else True)

    run(work)


def test_a_worker_that_is_gone_gets_nothing_and_nothing_is_counted(stall: Stall, store: tampu.Store) -> None:
    async def work() -> None:
        async with connected(stall) as raw:
            await raw.send(frames.Ready(5))
            assert await raw.quiet()

    run(work)
    until(lambda: not stall.state.polls)
    store.publish("jobs", 1)
    (lease,) = store.claim("jobs")
    assert lease.message.attempts == 1


def test_a_worker_that_does_not_read_gets_its_credit_and_no_more(stall: Stall, store: tampu.Store) -> None:
    store.publish_many("jobs", [b"x" * 50_000] * 60)

    async def work() -> None:
        async with connected(stall) as raw:
            await raw.send(frames.Ready(20))
            await asyncio.to_thread(until, lambda: store.stats("jobs").leased == 20)
            got = 0
            while got < 20:
                got += len((await raw.receive()).leases)
            assert await raw.quiet()

    run(work)


class Deaf:
    """A worker that reads nothing but that it may work."""

    def __init__(self, server: Server, token: str) -> None:
        place = urlsplit(server.url)
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self._socket.connect((place.hostname, place.port))
        self._socket.sendall(
            f"GET {frames.PATH} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\nupgrade: websocket\r\n"
            f"connection: upgrade\r\nsec-websocket-version: 13\r\nsec-websocket-key: {'A' * 22}==\r\n\r\n".encode()
        )
        assert self._socket.recv(1000).startswith(b"HTTP/1.1 101 ")
        for said in (frames.Open(["jobs"]), frames.Ready(1000)):
            raw = frames.write(said)
            self._socket.sendall(bytes([0x82, 0x80 | len(raw)]) + bytes(4) + raw)  # masked with nothing

    def close(self) -> None:
        self._socket.close()


@pytest.mark.parametrize("why", ["nothing", "its key", "the server"])
def test_a_worker_that_does_not_read_is_let_go(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    monkeypatch.setattr(stream_protocol, "_STOP_SECONDS", 0.1)
    patience = 3600 if why == "the server" else 2
    server = Server(url=str(tmp_path / "jobs.db"), read_timeout=patience, stop_timeout=600)
    stuck: list[Any] = []
    pause = stream_protocol._StreamProtocol.pause_writing

    def noting(self: Any) -> None:
        stuck.append(self)
        pause(self)

    monkeypatch.setattr(stream_protocol._StreamProtocol, "pause_writing", noting)
    with tampu.open(server.url, token=server.token) as store:
        ring = KeyAdmin(server.state.core, "default")
        made = server.state.core.drive(ring.create("deaf", [parse("consume")]))
        deaf = Deaf(server, made.token)
        store.publish_many("jobs", [b"x" * 200_000] * 60)
        until(lambda: stuck)
        if why == "its key":
            server.state.core.drive(ring.revoke(made.key.id))
        if why != "the server":
            until(lambda: not server.state.polls and Scrape(Web(server.url)).of("tampu_worker_streams") == 0)
    server.stop()
    deaf.close()
    assert "Traceback" not in caplog.text


# -- the client


def test_the_client_streams_and_everything_is_worked_off_once(stall: Stall, store: tampu.Store) -> None:
    store.publish_many("jobs", range(300))
    seen: list[int] = []
    with store.stream("jobs", credit=16, worker="w") as stream:
        assert isinstance(stream, WireStream)
        while len(seen) < 300:
            lease = stream.next(60)
            assert lease is not None
            seen.append(lease.payload)
            stream.ack(lease)
            assert len(stream._held) <= 16
    assert sorted(seen) == list(range(300))
    assert store.stats("jobs").done == 300


@pytest.mark.parametrize("kind", ["pushed", "polled"])
def test_both_kinds_behave_the_same(stall: Stall, store: tampu.Store, kind: str) -> None:
    local = tampu.open(stall.settings.url, maintenance=False) if kind == "polled" else None
    source = local or store
    store.queues.put("jobs", backoff=0, max_attempts=2)
    store.publish_many("jobs", ["ack", "nack", "reject", "release"])
    with source.stream(["jobs"], credit=4, worker="w") as stream:
        assert isinstance(stream, PolledStream if local else WireStream)
        leases: dict[str, tampu.Lease] = {}
        while len(leases) < 4:
            lease = stream.next(60)
            assert lease is not None
            leases[lease.payload] = lease
        assert stream.next(0) is None
        assert stream.ack(leases["ack"], {"ok": True}).result(60).state == "done"
        assert stream.nack(leases["nack"], ValueError("no"), delay=3600).result(60).state == "delayed"
        assert stream.reject(leases["reject"], "bad").result(60).state == "dead"
        assert stream.release(leases["release"]).result(60).state == "ready"
        again = stream.next(60)
        assert again is not None
        assert (again.payload, again.message.attempts) == ("release", 1)
        with pytest.raises(tampu.LeaseLost):
            stream.ack(leases["release"]).result(60)
        store.publish("jobs", "left")
        until(lambda: store.stats("jobs").leased == 2)
    until(lambda: store.stats("jobs").leased == 1)
    assert store.get(leases["ack"].message.id).result == {"ok": True}
    (left,) = store.claim("jobs", limit=5)
    assert (left.payload, left.message.attempts) == ("left", 1)
    if local:
        local.close()


@pytest.mark.parametrize("kind", ["pushed", "polled"])
def test_leases_are_kept_longer_without_waiting(stall: Stall, store: tampu.Store, kind: str) -> None:
    local = tampu.open(stall.settings.url, maintenance=False) if kind == "polled" else None
    store.publish_many("jobs", ["kept", "given back", "asked to stop"])
    with (local or store).stream("jobs", credit=3, lease=60) as stream:
        kept, back, stop = (stream.next(60) for _ in range(3))
        assert kept is not None
        assert back is not None
        assert stop is not None
        store.cancel(stop.id)
        stream.release(back).result(60)
        asked = [stream.extend(kept, 3600), stream.extend(stop), stream.extend(back, timedelta(minutes=5))]
        assert asked[0].result(60).until_us > kept.until_us + 3_000_000_000
        assert asked[1].result(60).message.cancel_requested
        with pytest.raises(tampu.LeaseLost):
            asked[2].result(60)
        assert stream.ack(asked[0].result()).result(60).state == "done"
        with pytest.raises(tampu.InvalidMessage):
            stream.extend(stop, -1)
        with pytest.raises(tampu.InvalidMessage):
            stream.extend(stop.receipt)  # type: ignore[arg-type]  # bad on purpose
        stream.nack(stop).result(60)
    with pytest.raises(tampu.InvalidState):
        stream.extend(kept)
    if local:
        local.close()


def test_tasks_keep_leases_longer_too(stall: Stall, store: tampu.Store) -> None:
    store.publish("jobs", 1)

    async def go() -> bool:
        async with tampu.open_async(stall.url, token=stall.token) as aq, aq.stream("jobs", lease=60) as stream:
            lease = await stream.next(60)
            assert lease is not None
            longer = await stream.extend(lease, 600)
            await stream.ack(longer)
            return longer.until_us > lease.until_us

    assert asyncio.run(go())


def test_a_restart_of_the_server_is_lived_through(tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "url": str(tmp_path / "jobs.db"), "key_file": tmp_path / "admin.key", "port": free_port(),
    }  # fmt: skip
    server = Server(**settings)
    with tampu.open(settings["url"], maintenance=False) as store, tampu.open(server.url, token=server.token) as client:
        store.publish_many("jobs", range(10))
        with client.stream("jobs", credit=4) as stream:
            first = [stream.next(60) for _ in range(2)]
            server.stop()
            late = [stream.ack(lease) for lease in first if lease is not None]
            server = Server(**settings)
            assert [one.result(60).state for one in late] == ["done", "done"]
            for _ in range(8):
                lease = stream.next(60)
                assert lease is not None
                stream.ack(lease)
        assert store.stats("jobs").done == 10
    server.stop()


def test_a_revoked_key_ends_the_clients_stream_with_its_error(stall: Stall) -> None:
    token, id = key(stall, "consume")
    with tampu.open(stall.url, token=token) as store, store.stream("jobs") as stream:
        stall.core.drive(KeyAdmin(stall.core, "*").revoke(id))
        with pytest.raises(tampu.Unauthorized):
            stream.next(60)


def test_a_client_that_may_not_consume_is_refused(stall: Stall) -> None:
    with tampu.open(stall.url, token=key(stall, "view")[0]) as store, pytest.raises(tampu.Forbidden):
        store.stream("jobs")


def test_without_websockets_on_the_way_the_client_polls(
    stall: Stall, store: tampu.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frames, "PATH", "/v1/nothing")
    store.publish("jobs", 1)
    with store.stream("jobs") as stream:
        assert isinstance(stream, PolledStream)
        lease = stream.next(60)
        assert lease is not None
        assert stream.ack(lease).result(60).state == "done"


def test_threads_share_a_stream(stall: Stall, store: tampu.Store) -> None:
    store.publish_many("jobs", range(200))
    seen: list[int] = []
    over = threading.Event()

    def work(stream: Any) -> None:
        while not over.is_set():
            lease = stream.next(0.1)
            if lease is not None:
                seen.append(lease.payload)
                stream.ack(lease)

    with store.stream("jobs", credit=8) as stream:
        threads = [threading.Thread(target=work, args=(stream,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        try:
            until(lambda: len(seen) >= 200)
        finally:
            over.set()
        for thread in threads:
            thread.join()
    assert sorted(seen) == list(range(200))
    assert store.stats("jobs").done == 200


def test_all_credit_is_used_also_when_little_of_it_was(store: tampu.Store) -> None:
    with store.stream("jobs", credit=4) as stream:
        store.publish("jobs", "first")
        lease = stream.next(60)
        assert lease is not None
        stream.ack(lease).result(60)
        store.publish_many("jobs", range(4))
        held = [stream.next(60) for _ in range(4)]
        assert [lease.payload for lease in held if lease is not None] == [0, 1, 2, 3]
