"""A worker's stream over a WebSocket: one connection in its own thread, reopened when it breaks.

Settles without a reply are sent again on the next connection; settling twice is harmless. Received leases stay valid
meanwhile, and count against the credit of the next connection.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

import aiohttp
import msgspec
from yarl import URL

from tampu import tracing
from tampu.broker.streams.requests import ExtendRequest, SettleRequest, extended
from tampu.broker.streams.stream import Stream, StreamRequest
from tampu.client import failures
from tampu.client.async_http import read_answer
from tampu.client.failures import CONNECT_SECONDS, pauses
from tampu.client.verbs import outcome, settlement_body
from tampu.model.decoders import from_json
from tampu.model.errors import (
    Forbidden,
    InvalidMessage,
    PayloadTooLarge,
    RateLimited,
    TampuError,
    Unauthorized,
    Unavailable,
)
from tampu.model.message import Lease
from tampu.model.outcome import Release
from tampu.model.times import SECOND, instant
from tampu.wire import bodies, frames
from tampu.wire.messages import to_lease
from tampu.wire.problems import from_answer, of_item

_HEARTBEAT_SECONDS = 20.0
_STOP_SECONDS = 5.0
_MAX_BATCH = 1000
_FRAME_HEAD = 100
"""More bytes than a settle frame has around its settlements."""
_CLOSE_ERRORS = {
    frames.UNAUTHORIZED: Unauthorized,
    frames.FORBIDDEN: Forbidden,
    frames.BAD_FRAME: InvalidMessage,
}
_read_me = from_json(bodies.Me).decode


class _NoStream(Exception):
    """The server, or a proxy before it, does not support streams."""


class WireStream(Stream):
    def __init__(self, url: str, headers: dict[str, str], verbs: Any, asked: StreamRequest) -> None:
        super().__init__(asked)
        self._url = URL(url.replace("http", "ws", 1) + frames.PATH, encoded=True)
        self._headers = {name: text for name, text in headers.items() if name in ("authorization", "tampu-tenant")}
        self._verbs = verbs
        self._outgoing: deque[SettleRequest | ExtendRequest] = deque()
        self._writer_sleeps = True
        """The writer must be woken to see new requests in `_outgoing`."""
        self._numbers = itertools.count(1)
        self._pending: dict[int, list[Any]] = {}
        """Requests without a reply, by the number of their frame."""
        self._granted = 0
        """Credit given to the server and not used yet."""
        self._max_frame = 0
        """Maximum bytes of a frame; the server says it when the stream is opened."""
        self._stopping = False
        self._stopped = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._work: asyncio.Event = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="tampu-stream", daemon=True)
        self._decided = threading.Event()
        """Set when `_available` is known."""
        self._available = False

    def begin(self) -> bool:
        """Connect. False if streams are not supported; raises if the server refuses the caller."""
        self._thread.start()
        self._decided.wait()
        if not self._available and self._failure is not None:
            raise self._failure
        return self._available

    # -- called by the worker's threads

    def _send(self, settling: SettleRequest | ExtendRequest) -> None:
        self._outgoing.append(settling)
        if self._writer_sleeps:
            self._writer_sleeps = False
            self._loop.call_soon_threadsafe(self._work.set)

    def _stop(self) -> None:
        """Wait until the server pushes no more leases, so that the received ones can be released."""
        self._stopping = True
        if self._failure is None:
            self._loop.call_soon_threadsafe(self._work.set)
            self._stopped.wait(_STOP_SECONDS)

    def _finish(self) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._main.cancel)
            self._thread.join()
        self._drop(Unavailable("the stream was closed before the server answered"))

    # -- the connection

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._main = self._loop.create_task(self._stay_connected())
            (ended,) = self._loop.run_until_complete(asyncio.gather(self._main, return_exceptions=True))
            if isinstance(ended, Exception):  # callers that wait for leases must not wait forever
                self._give_up(TampuError(f"the stream failed: {ended!r}", hint="please report this bug"))
        finally:
            self._decided.set()
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()

    async def _stay_connected(self) -> None:
        tries = pauses(math.inf)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS)
        async with aiohttp.ClientSession(headers=self._headers, timeout=timeout) as session:
            while True:
                retry_after = 0.0
                try:
                    if await self._use_connection(session):
                        tries = pauses(math.inf)
                except _NoStream:
                    if not self._available:
                        return
                except TampuError as error:
                    if not isinstance(error, Unavailable | RateLimited) or not self._available:
                        self._give_up(error)
                        return
                    if isinstance(error, RateLimited):
                        retry_after = error.retry_after or 0.0
                await asyncio.sleep(max(next(tries), retry_after))

    def _give_up(self, error: TampuError) -> None:
        self._fail(error)
        self._drop(error)

    def _drop(self, error: TampuError) -> None:
        waiting = [request for batch in self._pending.values() for request in batch] + list(self._outgoing)
        self._pending.clear()
        self._outgoing.clear()
        for request in waiting:
            self._settled(request, error)

    async def _use_connection(self, session: aiohttp.ClientSession) -> bool:
        """Open a connection and use it until it breaks. True if the stream was opened."""
        try:
            async with session.ws_connect(
                self._url, heartbeat=_HEARTBEAT_SECONDS, max_msg_size=failures.MAX_ANSWER, compress=0, autoping=True
            ) as socket:
                return await self._talk(socket)
        except aiohttp.WSServerHandshakeError as error:
            if error.status in (401, 403, 429):
                raise await self._find_refusal(session) from None
            if error.status >= 500:
                raise Unavailable(f"the server answered {error.status}") from None
            raise _NoStream from None
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Unavailable(f"cannot reach {self._url}: {error}") from None

    async def _find_refusal(self, session: aiohttp.ClientSession) -> TampuError | _NoStream:
        """Why the handshake was refused. Its response has no body for us, so call ``/v1/me``."""
        plain = self._url.with_scheme("https" if self._url.scheme == "wss" else "http")
        try:
            async with session.get(plain.parent / "me", allow_redirects=False) as response:
                body = await read_answer(response)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            return Unavailable(f"cannot reach the server at {plain.origin()}: {error}")
        if response.status >= 300:
            return from_answer(response.status, body)
        try:
            permissions = _read_me(body).permissions
        except msgspec.MsgspecError as error:
            return Unavailable(f"{plain.origin()} does not answer like a tampu server: {error}")
        if "consume" in permissions:
            return _NoStream()  # then the server, or a proxy, refused the path
        return Forbidden("this key may not consume", hint="use a key with the permission consume")

    async def _talk(self, socket: aiohttp.ClientWebSocketResponse) -> bool:
        asked = self._request
        lease = None if asked.lease_us is None else asked.lease_us / SECOND
        await socket.send_bytes(frames.write(frames.Open(asked.queues, lease, asked.worker)))
        opened = await self._next(socket)
        if not isinstance(opened, frames.Opened):
            raise Unavailable("the server did not open the stream")
        self._max_frame = opened.max_frame
        self._available = True
        self._decided.set()
        self._granted = 0
        resent = [request for batch in self._pending.values() for request in batch]
        self._pending.clear()
        self._outgoing.extendleft(reversed(resent))
        self._work.set()
        parts = [asyncio.create_task(part) for part in (self._read(socket), self._write(socket))]
        try:
            done, _ = await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
            for part in done:
                part.result()
        except (Unavailable, aiohttp.ClientError, OSError):  # broken; pending requests are sent again on the next one
            return True
        finally:
            for part in parts:
                part.cancel()
            await asyncio.gather(*parts, return_exceptions=True)
        return True

    async def _read(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        while True:
            self._handle(await self._next(socket))

    async def _next(self, socket: aiohttp.ClientWebSocketResponse) -> frames.ServerFrame:
        message = await socket.receive()
        if message.type is aiohttp.WSMsgType.BINARY:
            try:
                frame = frames.SERVER_FRAME.decode(message.data)
            except msgspec.MsgspecError as error:
                raise InvalidMessage(f"cannot decode the server's frame: {error}") from None
            if isinstance(frame, frames.Refused) and frame.seq is None:
                raise of_item(frame.error)
            return frame
        kind = _CLOSE_ERRORS.get(socket.close_code or 0)
        if kind is not None:
            raise kind(str(message.extra or "the server closed the stream"))
        raise Unavailable("the connection broke")

    def _handle(self, frame: frames.ServerFrame) -> None:
        if isinstance(frame, frames.Leases):
            leases = [to_lease(view) for view in frame.leases]
            self._granted -= len(leases)
            if tracing.on():
                tracing.claimed(
                    self._verbs.tenant, self._request.queues, leases, tracing.now_ns(), self._request.worker
                )
            if not self._received(leases):
                self._release(leases)
            elif self._credit_is_low:
                self._work.set()
        elif isinstance(frame, frames.Stopped):
            self._stopped.set()
        else:
            self._handle_reply(frame)

    def _handle_reply(self, frame: frames.ServerFrame) -> None:
        if isinstance(frame, frames.Settled):
            batch = self._pending.pop(frame.seq)
            for request, view in zip(batch, frame.outcomes, strict=True):
                settled = outcome(view)
                if request.begun is not None:
                    tracing.settled(self._verbs.tenant, [request.settlement], [settled], *request.begun)
                self._settled(request, settled)
        elif isinstance(frame, frames.Extended):
            for request, lease in zip(self._pending.pop(frame.seq), frame.leases, strict=True):
                if lease.until is None:
                    self._settled(request, of_item(lease.error))
                else:
                    until_us = instant(lease.until, "until")
                    self._settled(request, extended(request.lease, until_us, cancel=lease.cancel_requested))
        elif isinstance(frame, frames.Refused) and frame.seq is not None:
            error: TampuError = of_item(frame.error)
            batch = self._pending.pop(frame.seq)
            if frame.retry_after is not None:
                self._loop.call_later(frame.retry_after, self._resend, batch)
                return
            for request in batch:
                self._settled(request, error)

    def _resend(self, batch: list[SettleRequest | ExtendRequest]) -> None:
        self._outgoing.extend(batch)
        self._work.set()

    def _release(self, leases: Sequence[Lease]) -> None:
        """Release leases that arrived after the worker stopped taking them."""
        with self._lock:
            self._unsettled += len(leases)
        self._outgoing.extend(SettleRequest(Release(lease), Future()) for lease in leases)
        self._work.set()

    async def _write(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        """Send settles and extends, in batches when there are many, and grant new credit."""
        stopped = False
        while True:
            self._work.clear()
            self._writer_sleeps = True
            while self._outgoing:
                batch = [self._outgoing.popleft() for _ in range(min(_MAX_BATCH, len(self._outgoing)))]
                await self._send_extends(socket, [one for one in batch if isinstance(one, ExtendRequest)])
                await self._send_settles(socket, [one for one in batch if isinstance(one, SettleRequest)])
            if self._stopping:
                if not stopped:
                    await socket.send_bytes(frames.write(frames.Stop()))
                stopped = True
            elif self._credit_is_low:
                free = self._free - self._granted  # other threads settle, which can only raise it
                self._granted += free
                await socket.send_bytes(frames.write(frames.Ready(free)))
            await self._work.wait()
            self._writer_sleeps = False

    @property
    def _credit_is_low(self) -> bool:
        """True if half of the credit or less is left, and there is more to grant. Sooner would double the frames."""
        return self._granted <= self._request.credit // 2 and self._free > self._granted

    async def _send_extends(self, socket: aiohttp.ClientWebSocketResponse, batch: list[ExtendRequest]) -> None:
        if batch:
            seq = next(self._numbers)
            self._pending[seq] = batch
            items = [bodies.ExtendItem(request.lease.receipt, request.by) for request in batch]
            await socket.send_bytes(frames.write(frames.Extend(seq, items)))

    async def _send_settles(self, socket: aiohttp.ClientWebSocketResponse, batch: list[SettleRequest]) -> None:
        frame: list[bytes] = []
        sent: list[SettleRequest] = []
        room = self._max_frame - _FRAME_HEAD
        for request in batch:
            try:
                settlement = frames.write(settlement_body(self._verbs.checked(request.settlement)))
                if len(settlement) > self._max_frame - _FRAME_HEAD:
                    raise PayloadTooLarge(
                        f"the settlement has {len(settlement)} bytes; a stream of this server takes {self._max_frame}",
                        field="result",
                        hint="store the result elsewhere, or raise max_frame of the server",
                    )
            except TampuError as error:
                self._settled(request, error)
                continue
            if len(settlement) > room:
                await self._send_frame(socket, sent, frame)
                frame, sent, room = [], [], self._max_frame - _FRAME_HEAD
            frame.append(settlement)
            sent.append(request)
            room -= len(settlement)
        if sent:
            await self._send_frame(socket, sent, frame)

    async def _send_frame(
        self, socket: aiohttp.ClientWebSocketResponse, sent: list[SettleRequest], settlements: list[bytes]
    ) -> None:
        seq = next(self._numbers)
        self._pending[seq] = sent
        raws = [msgspec.Raw(settlement) for settlement in settlements]
        await socket.send_bytes(frames.write({"op": "settle", "seq": seq, "settlements": raws}))
