"""Worker streams: one WebSocket per worker; messages are pushed within its credit, settles and extends are pipelined.

A claim waits for messages as a long poll does, so nobody polls and commits are shared. Messages that were claimed but
could not be sent are released without counting the attempt. Sent but unsettled ones expire like any lease.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import msgspec
import structlog

from tampu.broker import validate
from tampu.model.errors import Forbidden, RateLimited, StorageError, TampuError, Unauthorized
from tampu.model.message import MSGPACK, Lease
from tampu.server.auth.grants import Caller
from tampu.server.http import access_log, message_handlers
from tampu.server.http.long_polls import REVOKED, STOPPING, Poll, PollOver
from tampu.server.http.request import Receive, Scope, Send, check_batch, refused
from tampu.server.server_state import ServerState
from tampu.wire import frames
from tampu.wire.messages import lease_view
from tampu.wire.problems import item_error, problem

PATH = frames.PATH
_SWITCHED = 101
"""The status of a stream that was accepted."""
_MAX_PUSH = 500
_MAX_PENDING = 256
"""Requests without a reply; more frames are not read until some are answered."""
_RECHECK_SECONDS = 15.0
_RETRY_SECONDS = 0.5
_SOON_SECONDS = 0.01
_CLAIM_SECONDS = 3600.0
log = structlog.get_logger("tampu.server")


async def serve(server: ServerState, request_id: str, scope: Scope, receive: Receive, send: Send) -> None:
    headers: dict[bytes, bytes] = dict(scope["headers"])
    client = scope.get("client")
    address = client[0] if client else ""
    started, status, subject = time.perf_counter(), _SWITCHED, access_log.Subject()
    caller: Caller | None = None
    await receive()  # websocket.connect
    try:
        try:
            caller = await server.authenticator.admit(headers, address, "STREAM")
            caller.need_somewhere("consume")
            server.budget.streams.take()
        except TampuError as error:
            reply = refused(server, request_id, error)
            status = reply.status
            await send({"type": "websocket.http.response.start", "status": status, "headers": reply.headers})
            await send({"type": "websocket.http.response.body", "body": reply.body})
            return
        server.metrics.streams.inc()
        try:
            await send({"type": "websocket.accept"})
            await _Stream(server, caller, headers, receive, send, subject).run()
        finally:
            server.metrics.streams.dec()
            server.budget.streams.give()
    finally:
        if server.settings.access_log or status >= 500:
            access_log.write(request_id, "STREAM", PATH, status, time.perf_counter() - started, caller, subject)


class _Closed(Exception):
    """The stream ends. ``code`` is the close code to send; None if the worker closed it."""

    def __init__(self, code: int | None = None, reason: str = "") -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


class _Stream:
    def __init__(
        self,
        server: ServerState,
        caller: Caller,
        headers: dict[bytes, bytes],
        receive: Receive,
        send: Send,
        subject: access_log.Subject,
    ) -> None:
        self._server = server
        self._subject = subject
        self._caller = caller
        self._headers = headers
        self._receive = receive
        self._send = send
        self._credit = 0
        self._more = asyncio.Event()
        self._replies: asyncio.Queue[asyncio.Task[frames.ServerFrame]] = asyncio.Queue(_MAX_PENDING)
        self._opened: asyncio.Future[frames.Open] = asyncio.get_running_loop().create_future()
        self._claiming: Poll | None = None
        self._stopping = False
        self._over = False

    async def run(self) -> None:
        parts = [asyncio.create_task(part) for part in (self._guard(), self._read(), self._push(), self._reply())]
        try:
            done, _ = await asyncio.wait(parts, return_when=asyncio.FIRST_EXCEPTION)
        finally:
            # The push task releases what it has claimed; settles that have begun go on.
            self._over = True
            for part in parts:
                part.cancel()
            await asyncio.gather(*parts, return_exceptions=True)
        # Last, because it can take long if the worker does not read.
        await self._end(next(e for e in (task.exception() for task in done) if e is not None))

    async def _end(self, error: BaseException) -> None:
        if isinstance(error, _Closed):
            code, reason = error.code, error.reason
        else:
            log.error("defect", route=PATH, exc_info=error)
            code, reason = 1011, "internal error"
        if code is not None:
            await self._send(
                {"type": "websocket.close", "code": code, "reason": reason.encode()[:120].decode(errors="ignore")}
            )

    # -- authorization

    async def _guard(self) -> None:
        """End the stream when its key is revoked or expires, or the server stops."""
        never: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        while True:
            watch = Poll(self._caller)
            self._server.polls.join(watch)
            try:
                await watch.until(never, _RECHECK_SECONDS)
            except PollOver as over:
                if over.why != REVOKED:
                    raise _Closed(frames.STOPPING, "the server is stopping") from None
            finally:
                self._server.polls.leave(watch)
            try:
                self._caller = await self._server.authenticator.readmit(self._headers, "STREAM")
                self._caller.need_somewhere("consume")
            except Unauthorized as error:
                raise _Closed(frames.UNAUTHORIZED, error.message) from None
            except Forbidden as error:
                raise _Closed(frames.FORBIDDEN, error.message) from None
            except StorageError as error:  # cannot be checked now; try again later
                log.warning("store_unreachable", error=str(error))

    # -- frames of the worker

    async def _read(self) -> None:
        while True:
            frame = await self._next()
            if isinstance(frame, frames.Ready) and self._opened.done():
                if self._credit + frame.n > frames.MOST_CREDIT:
                    raise _Closed(frames.BAD_FRAME, f"more than {frames.MOST_CREDIT} credits")
                self._credit += frame.n
                self._more.set()
            elif isinstance(frame, frames.Stop) and self._opened.done():
                self._stop()
            elif isinstance(frame, frames.Settle | frames.Extend):
                await self._replies.put(asyncio.create_task(self._answer(frame)))
            elif isinstance(frame, frames.Open) and not self._opened.done():
                await self._open(frame)
                self._opened.set_result(frame)
            else:
                raise _Closed(frames.BAD_FRAME, "the first frame must be open, and it can be sent only once")

    async def _next(self) -> frames.WorkerFrame:
        message = await self._receive()
        if message["type"] == "websocket.disconnect":
            raise _Closed
        raw = message.get("bytes")
        if raw is None:
            raise _Closed(frames.BAD_FRAME, "frames must be binary MessagePack")
        try:
            return frames.WORKER_FRAME.decode(raw)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise _Closed(frames.BAD_FRAME, f"invalid frame: {error}") from None

    async def _open(self, frame: frames.Open) -> None:
        try:
            names, _ = validate.claim(frame.queues, 1, frame.lease, frame.worker)
            self._subject.add(names)
            self._caller.need("consume", *names)
            await self._server.load_settings(self._caller.tenant, *names)
        except TampuError as error:
            await self._write(frames.Refused(item_error(error)))
            code = frames.FORBIDDEN if isinstance(error, Forbidden) else frames.BAD_FRAME
            raise _Closed(code, error.message) from None
        await self._write(frames.Opened(self._server.settings.max_frame))

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
                await asyncio.sleep(error.retry_after or _RETRY_SECONDS)
                continue
            except TampuError as error:
                log.warning("store_unreachable", error=str(error))
                await asyncio.sleep(_RETRY_SECONDS)
                continue
            if leases:
                await self._deliver(leases)
        await self._write(frames.Stopped())

    async def _claim(self, opened: frames.Open) -> list[Lease]:
        sizes = self._server.claim_sizes
        limit = sizes.limit(self._caller.tenant, opened.queues, min(self._credit, _MAX_PUSH))
        steps = self._server.verbs(self._caller.tenant).claim(
            opened.queues,
            limit=min(limit, self._server.limits.most(self._caller, limit)),
            lease=opened.lease,
            wait=_CLAIM_SECONDS,
            worker=opened.worker,
        )
        try:
            self._claiming = Poll(self._caller)
            leases: list[Lease] = await self._server.drive(steps, self._claiming)
            sizes.note(self._caller.tenant, opened.queues, leases)
            return leases
        except PollOver:  # the guard decides whether the stream goes on
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
        if len(leases) > 1 and self._server.limits.applies(self._caller):
            await self._server.limits.charge(self._caller, len(leases) - 1)

    # -- replies

    async def _reply(self) -> None:
        """Send replies in the order of the requests."""
        while True:
            task = await self._replies.get()
            await self._write(await task)

    async def _answer(self, frame: frames.Settle | frames.Extend) -> frames.ServerFrame:
        server, caller = self._server, self._caller
        items: Sequence[Any] = frame.settlements if isinstance(frame, frames.Settle) else frame.leases
        try:
            check_batch(server, items, "items")
            queues = message_handlers.queues_of(caller, [item.receipt for item in items])
            await self._spend(len(items))
            await server.load_settings(caller.tenant, *queues)
            if isinstance(frame, frames.Extend):
                return frames.Extended(frame.seq, await message_handlers.extended(server, caller, frame.leases))
            model = message_handlers.settlements(server, caller, frame.settlements, MSGPACK)
            outcomes = await message_handlers.settled(server, caller, frame.settlements, model)
            return frames.Settled(frame.seq, outcomes)
        except TampuError as error:
            return frames.Refused(item_error(error), frame.seq, problem(error).retry_after)

    async def _spend(self, cost: int) -> None:
        if self._server.limits.applies(self._caller):
            await self._server.limits.take(self._caller, max(1, cost))

    async def _write(self, frame: frames.ServerFrame) -> None:
        try:
            await self._send({"type": "websocket.send", "bytes": frames.write(frame)})
        except OSError:  # uvicorn raises it when the worker is gone
            raise _Closed from None
