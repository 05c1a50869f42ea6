"""A worker's stream over a WebSocket: one connection in a thread of its own, kept alive over breaks.

What was settled and not answered when a connection broke is said again on the next one: settling twice does no harm.
Leases that were handed out stay valid meanwhile, and count against the credit of the next connection.
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
from tampu.broker.stream import Stream, StreamRequest
from tampu.broker.stream_requests import ExtendRequest, SettleRequest, extended
from tampu.client import verbs as wired
from tampu.client.failures import CONNECT_SECONDS, pauses
from tampu.client.verbs import outcome
from tampu.model.decoders import from_json
from tampu.model.errors import Forbidden, InvalidMessage, RateLimited, TampuError, Unauthorized, Unavailable
from tampu.model.message import Lease
from tampu.model.outcome import Release
from tampu.model.times import SECOND, instant
from tampu.wire import bodies, frames
from tampu.wire.messages import to_lease
from tampu.wire.problems import from_answer, of_item

_BEAT_SECONDS = 20.0
_STOP_SECONDS = 5.0
_SETTLED_AT_ONCE = 1000
_ENDS = {frames.UNAUTHORIZED: Unauthorized, frames.FORBIDDEN: Forbidden, frames.BAD_FRAME: InvalidMessage}
_read_me = from_json(bodies.Me).decode


class _NoStream(Exception):
    """The server, or something on the way to it, has no streams."""


class WireStream(Stream):
    def __init__(self, url: str, headers: dict[str, str], verbs: Any, asked: StreamRequest) -> None:
        super().__init__(asked)
        self._url = URL(url.replace("http", "ws", 1) + frames.PATH, encoded=True)
        self._headers = {name: text for name, text in headers.items() if name in ("authorization", "tampu-tenant")}
        self._verbs = verbs
        self._going: deque[SettleRequest | ExtendRequest] = deque()
        self._asleep = True
        """Nobody is about to look at `_going`."""
        self._numbers = itertools.count(1)
        self._under_way: dict[int, list[Any]] = {}
        """Settlements, or longer leases, by the number of their question."""
        self._granted = 0
        """Credit that the server has from us and has not used."""
        self._stopping = False
        self._stopped = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._work: asyncio.Event = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="tampu-stream", daemon=True)
        self._known = threading.Event()
        self._possible = False

    def begin(self) -> bool:
        """Connect; false when there are no streams on the way. Raises what the server refuses."""
        self._thread.start()
        self._known.wait()
        if not self._possible and self._failure is not None:
            raise self._failure
        return self._possible

    # -- from the worker's threads

    def _send(self, settling: SettleRequest | ExtendRequest) -> None:
        self._going.append(settling)
        if self._asleep:
            self._asleep = False
            self._loop.call_soon_threadsafe(self._work.set)

    def _stop(self) -> None:
        """Wait until the server pushes nothing more; what has come till then can be given back."""
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
            self._main = self._loop.create_task(self._live())
            (ended,) = self._loop.run_until_complete(asyncio.gather(self._main, return_exceptions=True))
            if isinstance(ended, Exception):  # a defect; whoever waits for leases must not wait for ever
                self._give_up(TampuError(f"the stream ended by a mistake: {ended!r}"))
        finally:
            self._known.set()
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()

    async def _live(self) -> None:
        tries = pauses(math.inf)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS)
        async with aiohttp.ClientSession(headers=self._headers, timeout=timeout) as session:
            while True:
                at_least = 0.0
                try:
                    if await self._connected(session):
                        tries = pauses(math.inf)
                except _NoStream:
                    if not self._possible:
                        return
                except TampuError as error:
                    if not isinstance(error, Unavailable | RateLimited) or not self._possible:
                        self._give_up(error)
                        return
                    if isinstance(error, RateLimited):
                        at_least = error.retry_after or 0.0
                await asyncio.sleep(max(next(tries), at_least))

    def _give_up(self, error: TampuError) -> None:
        self._fail(error)
        self._drop(error)

    def _drop(self, error: TampuError) -> None:
        waiting = [one for batch in self._under_way.values() for one in batch] + list(self._going)
        self._under_way.clear()
        self._going.clear()
        for one in waiting:
            self._settled(one, error)

    async def _connected(self, session: aiohttp.ClientSession) -> bool:
        """One connection, until it breaks; whether it was of use."""
        try:
            async with session.ws_connect(
                self._url, heartbeat=_BEAT_SECONDS, max_msg_size=0, compress=0, autoping=True
            ) as socket:
                return await self._talk(socket)
        except aiohttp.WSServerHandshakeError as error:
            if error.status in (401, 403, 429):
                raise await self._refusal(session) from None
            if error.status >= 500:
                raise Unavailable(f"the server answered {error.status}") from None
            raise _NoStream from None
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Unavailable(f"the stream of {self._url} can not be reached: {error}") from None

    async def _refusal(self, session: aiohttp.ClientSession) -> TampuError | _NoStream:
        """The answer to a handshake has no body for us: ask who we are, the plain way, to be told why."""
        plain = self._url.with_scheme("https" if self._url.scheme == "wss" else "http")
        try:
            async with session.get(plain.parent / "me") as answer:
                body = await answer.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            return Unavailable(f"the server at {plain.origin()} can not be reached: {error}")
        if answer.status >= 300:
            return from_answer(answer.status, body)
        try:
            permissions = _read_me(body).permissions
        except msgspec.MsgspecError as error:
            return Unavailable(f"{plain.origin()} does not answer as a tampu server does: {error}")
        if "consume" in permissions:
            return _NoStream()  # so a server, or a proxy, says that there is no such path
        return Forbidden("this key may not consume", hint="ask for a key with the permission consume")

    async def _talk(self, socket: aiohttp.ClientWebSocketResponse) -> bool:
        asked = self._asked
        lease = None if asked.lease_us is None else asked.lease_us / SECOND
        await socket.send_bytes(frames.write(frames.Open(asked.queues, lease, asked.worker)))
        told = await self._next(socket)
        if not isinstance(told, frames.Opened):
            raise Unavailable("the server does not open the stream")
        self._possible = True
        self._known.set()
        self._granted = 0
        again = [one for batch in self._under_way.values() for one in batch]
        self._under_way.clear()
        self._going.extendleft(reversed(again))
        self._work.set()
        parts = [asyncio.create_task(part) for part in (self._read(socket), self._write(socket))]
        try:
            done, _ = await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
            for part in done:
                part.result()
        except (Unavailable, aiohttp.ClientError, OSError):  # it broke; what was under way is said again on the next
            return True
        finally:
            for part in parts:
                part.cancel()
            await asyncio.gather(*parts, return_exceptions=True)
        return True

    async def _read(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        while True:
            self._heard(await self._next(socket))

    async def _next(self, socket: aiohttp.ClientWebSocketResponse) -> frames.ServerFrame:
        message = await socket.receive()
        if message.type is aiohttp.WSMsgType.BINARY:
            try:
                told = frames.SERVER_FRAME.decode(message.data)
            except msgspec.MsgspecError as error:
                raise InvalidMessage(f"the server's frame can not be read: {error}") from None
            if isinstance(told, frames.Refused) and told.seq is None:
                raise of_item(told.error)
            return told
        kind = _ENDS.get(socket.close_code or 0)
        if kind is not None:
            raise kind(str(message.extra or "the server ended the stream"))
        raise Unavailable("the connection broke")

    def _heard(self, told: frames.ServerFrame) -> None:
        if isinstance(told, frames.Leases):
            leases = [to_lease(one) for one in told.leases]
            self._granted -= len(leases)
            if tracing.on():
                tracing.claimed(self._verbs.tenant, self._asked.queues, leases, tracing.now_ns(), self._asked.worker)
            if not self._came(leases):
                self._return(leases)
            elif self._runs_low:
                self._work.set()
        elif isinstance(told, frames.Stopped):
            self._stopped.set()
        else:
            self._answered(told)

    def _answered(self, told: frames.ServerFrame) -> None:
        if isinstance(told, frames.Settled):
            batch = self._under_way.pop(told.seq)
            for one, view in zip(batch, told.outcomes, strict=True):
                came = outcome(view)
                if one.begun is not None:
                    tracing.settled(self._verbs.tenant, [one.settlement], [came], *one.begun)
                self._settled(one, came)
        elif isinstance(told, frames.Extended):
            for one, answer in zip(self._under_way.pop(told.seq), told.leases, strict=True):
                if answer.until is None:
                    self._settled(one, of_item(answer.error))
                else:
                    until_us = instant(answer.until, "until")
                    self._settled(one, extended(one.lease, until_us, cancel=answer.cancel_requested))
        elif isinstance(told, frames.Refused) and told.seq is not None:
            error: TampuError = of_item(told.error)
            batch = self._under_way.pop(told.seq)
            if told.retry_after is not None:
                self._loop.call_later(told.retry_after, self._again, batch)
                return
            for one in batch:
                self._settled(one, error)

    def _again(self, batch: list[SettleRequest | ExtendRequest]) -> None:
        self._going.extend(batch)
        self._work.set()

    def _return(self, leases: Sequence[Lease]) -> None:
        """They came when nobody takes any more."""
        with self._lock:
            self._unsettled += len(leases)
        self._going.extend(SettleRequest(Release(lease), Future()) for lease in leases)
        self._work.set()

    async def _write(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        """Say what is settled, many at once when they come fast, and how much more can be taken."""
        stopped = False
        while True:
            self._work.clear()
            self._asleep = True
            while self._going:
                batch = [self._going.popleft() for _ in range(min(_SETTLED_AT_ONCE, len(self._going)))]
                await self._ask_longer(socket, [one for one in batch if isinstance(one, ExtendRequest)])
                await self._say(socket, [one for one in batch if isinstance(one, SettleRequest)])
            if self._stopping:
                if not stopped:
                    await socket.send_bytes(frames.write(frames.Stop()))
                stopped = True
            elif self._runs_low:
                free = self._free - self._granted  # settling, in other threads, only adds to it
                self._granted += free
                await socket.send_bytes(frames.write(frames.Ready(free)))
            await self._work.wait()
            self._asleep = False

    @property
    def _runs_low(self) -> bool:
        """Has the server half of its credit left, or less, and could have more? Sooner, it would double the frames."""
        return self._granted <= self._asked.credit // 2 and self._free > self._granted

    async def _ask_longer(self, socket: aiohttp.ClientWebSocketResponse, batch: list[ExtendRequest]) -> None:
        if batch:
            seq = next(self._numbers)
            self._under_way[seq] = batch
            asked = [bodies.ExtendItem(one.lease.receipt, one.by) for one in batch]
            await socket.send_bytes(frames.write(frames.Extend(seq, asked)))

    async def _say(self, socket: aiohttp.ClientWebSocketResponse, batch: list[SettleRequest]) -> None:
        seq = next(self._numbers)
        said: list[Any] = []
        kept: list[SettleRequest] = []
        for one in batch:
            try:
                said.append(wired.said(self._verbs.checked(one.settlement)))
                kept.append(one)
            except TampuError as error:
                self._settled(one, error)
        if kept:
            self._under_way[seq] = kept
            await socket.send_bytes(frames.write({"op": "settle", "seq": seq, "settlements": said}))
