"""Streams of workers: one WebSocket, messages pushed within its credit, settles and extends pipelined.

A claim waits for messages as a long poll does, so nobody polls and every commit is shared. What was claimed but could
not be sent is given back, uncounted; what was sent and never settled runs out like any lease.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import msgspec
import structlog

from tampu.broker import validate
from tampu.model.errors import Forbidden, InvalidMessage, RateLimited, StorageError, TampuError, Unauthorized
from tampu.model.message import MSGPACK, Lease
from tampu.server.auth.grants import Caller
from tampu.server.http import message_handlers
from tampu.server.http.error_response import refused
from tampu.server.http.long_polls import REVOKED, STOPPING, Poll, PollOver
from tampu.server.http.request import Receive, Scope, Send
from tampu.server.server_state import ServerState
from tampu.wire import frames
from tampu.wire.messages import lease_view
from tampu.wire.problems import item_error, problem

PATH = frames.PATH
_PUSHED_AT_ONCE = 500
_MOST_PENDING = 256
"""Questions that may be under way; more are not read until some are answered."""
_BEAT_SECONDS = 15.0
_AGAIN_SECONDS = 0.5
_SOON_SECONDS = 0.01
_CLAIM_SECONDS = 3600.0
log = structlog.get_logger("tampu.server")


async def serve(server: ServerState, request_id: str, scope: Scope, receive: Receive, send: Send) -> None:
    headers: dict[bytes, bytes] = dict(scope["headers"])
    client = scope.get("client")
    address = client[0] if client else ""
    await receive()  # websocket.connect
    try:
        caller = await server.authenticator.admit(headers, address, "STREAM")
        caller.need_somewhere("consume")
    except TampuError as error:
        reply = refused(server, request_id, error)
        await send({"type": "websocket.http.response.start", "status": reply.status, "headers": reply.headers})
        await send({"type": "websocket.http.response.body", "body": reply.body})
        return
    await send({"type": "websocket.accept"})
    server.metrics.streams.inc()
    try:
        await _Stream(server, caller, headers, receive, send).run()
    finally:
        server.metrics.streams.dec()


class _Closed(Exception):
    """The stream is over; ``code`` says how it is closed, none when the worker has closed it."""

    def __init__(self, code: int | None = None, reason: str = "") -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


class _Stream:
    def __init__(
        self, server: ServerState, caller: Caller, headers: dict[bytes, bytes], receive: Receive, send: Send
    ) -> None:
        self._server = server
        self._caller = caller
        self._headers = headers
        self._receive = receive
        self._send = send
        self._credit = 0
        self._more = asyncio.Event()
        self._answers: asyncio.Queue[asyncio.Task[frames.ServerFrame]] = asyncio.Queue(_MOST_PENDING)
        self._opened: asyncio.Future[frames.Open] = asyncio.get_running_loop().create_future()
        self._claiming: Poll | None = None
        self._stopping = False
        self._over = False

    async def run(self) -> None:
        parts = [asyncio.create_task(part) for part in (self._guard(), self._read(), self._push(), self._answer())]
        try:
            done, _ = await asyncio.wait(parts, return_when=asyncio.FIRST_EXCEPTION)
        finally:
            # A claim under way is given back by who carries it out; settles under way go on.
            self._over = True
            for part in parts:
                part.cancel()
            await asyncio.gather(*parts, return_exceptions=True)
        # Last: to a worker that does not read, it takes its time to say goodbye.
        await self._end(next(e for e in (task.exception() for task in done) if e is not None))

    async def _end(self, error: BaseException) -> None:
        if isinstance(error, _Closed):
            code, reason = error.code, error.reason
        else:
            log.error("defect", route=PATH, exc_info=error)
            code, reason = 1011, "the server made a mistake"
        if code is not None:
            await self._send(
                {"type": "websocket.close", "code": code, "reason": reason.encode()[:120].decode(errors="ignore")}
            )

    # -- who may be here

    async def _guard(self) -> None:
        """Ends the stream when its key does, or the server stops."""
        never: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        while True:
            watch = Poll(self._caller)
            self._server.polls.join(watch)
            try:
                await watch.until(never, _BEAT_SECONDS)
            except PollOver as over:
                if over.why != REVOKED:
                    raise _Closed(frames.STOPPING, "the server stops") from None
            finally:
                self._server.polls.leave(watch)
            try:
                self._caller = await self._server.authenticator.readmit(self._headers, "STREAM")
                self._caller.need_somewhere("consume")
            except Unauthorized as error:
                raise _Closed(frames.UNAUTHORIZED, error.message) from None
            except Forbidden as error:
                raise _Closed(frames.FORBIDDEN, error.message) from None
            except StorageError as error:  # nobody can tell now; the next look may
                log.warning("store_unreachable", error=str(error))

    # -- what the worker says

    async def _read(self) -> None:
        while True:
            said = await self._next()
            if isinstance(said, frames.Ready) and self._opened.done():
                if self._credit + said.n > frames.MOST_CREDIT:
                    raise _Closed(frames.BAD_FRAME, f"more than {frames.MOST_CREDIT} credits")
                self._credit += said.n
                self._more.set()
            elif isinstance(said, frames.Stop) and self._opened.done():
                self._stop()
            elif isinstance(said, frames.Settle):
                await self._answers.put(asyncio.create_task(self._settled(said)))
            elif isinstance(said, frames.Extend):
                await self._answers.put(asyncio.create_task(self._extended(said)))
            elif isinstance(said, frames.Open) and not self._opened.done():
                await self._open(said)
                self._opened.set_result(said)
            else:
                raise _Closed(frames.BAD_FRAME, "say first, and once, which queues are worked for")

    async def _next(self) -> frames.WorkerFrame:
        message = await self._receive()
        if message["type"] == "websocket.disconnect":
            raise _Closed
        raw = message.get("bytes")
        if raw is None:
            raise _Closed(frames.BAD_FRAME, "frames are binary: MessagePack")
        try:
            return frames.WORKER_FRAME.decode(raw)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise _Closed(frames.BAD_FRAME, f"not a frame: {error}") from None

    async def _open(self, said: frames.Open) -> None:
        try:
            names, _ = validate.claim(said.queues, 1, said.lease, said.worker)
            self._caller.need("consume", *names)
            await self._server.load_settings(self._caller.tenant, *names)
        except TampuError as error:
            await self._write(frames.Refused(item_error(error)))
            code = frames.FORBIDDEN if isinstance(error, Forbidden) else frames.BAD_FRAME
            raise _Closed(code, error.message) from None
        await self._write(frames.Opened())

    # -- pushing

    def _stop(self) -> None:
        self._stopping = True
        self._more.set()
        if self._claiming is not None:
            self._claiming.end(STOPPING)

    async def _push(self) -> None:
        opened = await self._opened
        while not self._stopping:
            if not self._credit:
                self._more.clear()
                await self._more.wait()
                continue
            try:
                self._caller.need("consume", *opened.queues)
                await self._spend(1)
                leases = await self._claim(opened)
            except Forbidden as error:
                raise _Closed(frames.FORBIDDEN, error.message) from None
            except RateLimited as error:
                await asyncio.sleep(error.retry_after or _AGAIN_SECONDS)
                continue
            except TampuError as error:
                log.warning("store_unreachable", error=str(error))
                await asyncio.sleep(_AGAIN_SECONDS)
                continue
            if leases:
                await self._deliver(leases)
        await self._write(frames.Stopped())

    async def _claim(self, opened: frames.Open) -> list[Lease]:
        limit = min(self._credit, _PUSHED_AT_ONCE)
        steps = self._server.verbs(self._caller.tenant).claim(
            opened.queues,
            limit=min(limit, self._server.limits.most(self._caller, limit)),
            lease=opened.lease,
            wait=_CLAIM_SECONDS,
            worker=opened.worker,
        )
        try:
            self._claiming = Poll(self._caller)
            return await self._server.drive(steps, self._claiming)
        except PollOver:  # the guard says whether it goes on
            await asyncio.sleep(0 if self._stopping else _SOON_SECONDS)
            return []
        finally:
            self._claiming = None

    async def _deliver(self, leases: list[Lease]) -> None:
        self._credit -= len(leases)
        try:
            if self._over:
                raise _Closed
            await self._write(frames.Leases([lease_view(lease, MSGPACK) for lease in leases]))
        except BaseException:
            await asyncio.shield(self._server.release(self._caller, leases))
            raise
        self._server.metrics.claim(leases, self._server.now_us())
        if len(leases) > 1 and self._server.limits.asked(self._caller):
            await self._server.limits.charge(self._caller, len(leases) - 1)

    # -- answering

    async def _answer(self) -> None:
        """In the order of the questions; those that are done are sent together as they are."""
        while True:
            task = await self._answers.get()
            await self._write(await task)

    async def _settled(self, said: frames.Settle) -> frames.ServerFrame:
        async def ask() -> frames.ServerFrame:
            queues = message_handlers.queues_of(self._caller, [item.receipt for item in said.settlements])
            await self._spend(len(said.settlements))
            return frames.Settled(
                said.seq, await message_handlers.settled(self._server, self._caller, said.settlements, queues)
            )

        return await self._asked(said.seq, len(said.settlements), ask())

    async def _extended(self, said: frames.Extend) -> frames.ServerFrame:
        async def ask() -> frames.ServerFrame:
            queues = message_handlers.queues_of(self._caller, [item.receipt for item in said.leases])
            await self._spend(len(said.leases))
            return frames.Extended(
                said.seq, await message_handlers.extended(self._server, self._caller, said.leases, queues)
            )

        return await self._asked(said.seq, len(said.leases), ask())

    async def _asked(self, seq: int, count: int, asking: Coroutine[Any, Any, frames.ServerFrame]) -> frames.ServerFrame:
        try:
            if count > self._server.settings.max_batch:
                asking.close()
                raise InvalidMessage(f"{count} at once; {self._server.settings.max_batch} is the most")
            return await asking
        except TampuError as error:
            return frames.Refused(item_error(error), seq, problem(error).retry_after)

    async def _spend(self, cost: int) -> None:
        if self._server.limits.asked(self._caller):
            await self._server.limits.take(self._caller, max(1, cost))

    async def _write(self, told: frames.ServerFrame) -> None:
        try:
            await self._send({"type": "websocket.send", "bytes": frames.write(told)})
        except OSError:  # the worker is gone: this is how the server tells
            raise _Closed from None
