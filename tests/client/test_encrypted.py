"""An https:// url: a proxy in front of the server takes the encryption off, as in most companies."""

from __future__ import annotations

import asyncio
import os
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import tampu
from tampu.client.async_http import AsyncHttp
from tampu.client.failures import NotTrusted
from tampu.client.request import Request
from tests.servers.certificates import self_signed
from tests.servers.http import Server

WORK = """
import asyncio, sys, tampu
from tampu.client.stream import WireStream

url, token = sys.argv[1:]
with tampu.open(url, token=token) as store:
    store.publish_many("jobs", [1, 2])
    (lease,) = store.claim("jobs")
    store.ack(lease)
    with store.stream("jobs") as stream:
        pushed = stream.next(60)
        assert pushed is not None and pushed.payload == 2 and isinstance(stream, WireStream)
        stream.ack(pushed)

async def tasks():
    async with tampu.open_async(url, token=token) as store:
        await store.publish("jobs", 3)
        (lease,) = await store.claim("jobs")
        await store.ack(lease)

asyncio.run(tasks())
"""


class Proxy:
    """Takes encrypted connections and hands what comes on, in a thread of its own."""

    def __init__(self, url: str, certificate: Path, key: Path) -> None:
        self._behind = urlsplit(url).port or 0
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(certificate, key)
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._done = asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._run(),), daemon=True)
        self._thread.start()
        assert self._ready.wait(60)

    async def _run(self) -> None:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._context)
        self.url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        self._ready.set()
        await self._done.wait()
        server.close()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self._behind)
        with suppress(OSError, asyncio.CancelledError):
            await asyncio.gather(self._pass(reader, back), self._pass(there, writer))
        for one in (back, writer):
            one.close()

    @staticmethod
    async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while part := await reader.read(65_536):
            writer.write(part)
            await writer.drain()
        writer.close()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._done.set)
        self._thread.join(60)
        self._loop.close()


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[tuple[Server, Proxy, Path]]:
    server = Server(url="memory://", key_file=tmp_path / "admin.key")
    certificate, key = self_signed(tmp_path)
    proxy = Proxy(server.url, certificate, key)
    yield server, proxy, certificate
    proxy.stop()
    server.stop()


def test_threads_tasks_and_streams_work_behind_a_certificate_that_is_trusted(
    harness: tuple[Server, Proxy, Path],
) -> None:
    server, proxy, certificate = harness
    done = subprocess.run(
        [sys.executable, "-c", WORK, proxy.url, server.token],
        env={**os.environ, "SSL_CERT_FILE": str(certificate)}, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    with tampu.open(server.url, token=server.token) as store:
        assert store.stats("jobs").done == 3


def test_a_certificate_that_nobody_vouches_for_is_refused_with_a_hint(harness: tuple[Server, Proxy, Path]) -> None:
    server, proxy, _ = harness
    with pytest.raises(tampu.Unavailable, match=r"(?i)certificate") as refused:
        tampu.open(proxy.url, token=server.token)
    assert "SSL_CERT_FILE" in str(refused.value.hint)

    async def task() -> None:
        async with tampu.open_async(proxy.url, token=server.token) as store:
            await store.stats()

    with pytest.raises(tampu.Unavailable, match=r"(?i)certificate") as refused:
        asyncio.run(task())
    assert "SSL_CERT_FILE" in str(refused.value.hint)

    async def request() -> None:  # a store is opened without tasks
        http = AsyncHttp(proxy.url, {})
        try:
            await http.send(Request("GET", "/health", bytes))
        finally:
            await http.close()

    with pytest.raises(NotTrusted):
        asyncio.run(request())
