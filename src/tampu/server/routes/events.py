"""The event feed: journal transitions as server-sent events, as long as the caller is authorized."""

from __future__ import annotations

import asyncio
import functools
import math
import time
from typing import Annotated, Any, Protocol

import msgspec
from fastapi import APIRouter, Query, Response

from tampu.broker import validate
from tampu.model.errors import Forbidden, TampuError, Unauthorized
from tampu.model.message import State
from tampu.server.auth.grants import Caller
from tampu.server.events import positions
from tampu.server.events.feed import Feed, Filter
from tampu.server.http.long_polls import GONE, REVOKED, Poll, PollOver
from tampu.server.http.openapi import doc
from tampu.server.http.request import HttpRequest, Receive, Scope, Send
from tampu.server.routes.common import CurrentCaller, CurrentRequest

router = APIRouter(prefix="/v1", tags=["reading"])
BEAT_SECONDS = 15.0
"""After this long without an event a comment is sent, which keeps the connection open. The caller is authenticated
again as often, even if there are many events."""
_MOST_NAMES = 100
_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]
_DOC = doc(text="Events")
_DOC["responses"][200]["content"] = {"text/event-stream": {"schema": {"type": "string"}}}
_encode = msgspec.json.Encoder().encode
Names = Annotated[list[str], Query(max_length=_MOST_NAMES)]


@router.get("/events", operation_id="events", **_DOC)
async def events(
    request: CurrentRequest,
    caller: CurrentCaller,
    queue: Annotated[Names, Query(description="Only these queues; * matches any characters")] = [],  # noqa: B006 - read only
    type: Annotated[Names, Query(description="Only messages of these types; * as above")] = [],  # noqa: B006 - read only
    verb: Annotated[Names, Query(description="Only transitions by these verbs")] = [],  # noqa: B006 - read only
    state: Annotated[list[State], Query(max_length=10, description="Only transitions to these states")] = [],  # noqa: B006 - read only
    after: Annotated[
        str | None, Query(max_length=30_000, description="Start after this event id; Last-Event-ID wins")
    ] = None,
    details: Annotated[bool, Query(description="With the type and correlation id of each message")] = False,
    seconds: Annotated[
        float | None, Query(ge=0, le=86_400, description="End after this many seconds; 0: at the newest event")
    ] = None,
) -> Response:
    """Transitions as they happen. Each event is one transition of the journal.

    Starts after ``Last-Event-ID`` without a gap, else now. An event ``gap`` says that events are missing because the
    journal no longer has them. An event ``end`` says why the server closes the feed.
    """
    caller.need_somewhere("view")
    for name in queue:
        if "*" not in name:
            caller.need("view", validate.name(name, "queue"))
    last = request.headers.get(b"last-event-id")
    begin = after if last is None else last.decode("latin-1")
    feed = Feed(request.server.tail, caller, Filter(queue, type, verb, state), request.server.types, details=details)
    request.server.budget.feeds.take()
    try:
        await feed.open(None if begin is None else positions.read(begin))
    except BaseException:
        feed.close()
        request.server.budget.feeds.give()
        raise
    return EventStream(request, feed, seconds)


class Subscriber(Protocol):
    """What a stream sends: `Feed`, or `tampu.server.events.changes.Changes`."""

    caller: Caller
    gap: Any

    @property
    def id(self) -> str | None: ...

    @property
    def idle(self) -> bool: ...

    async def wait(self) -> None: ...

    async def next(self) -> list[tuple[Any, str | None]]: ...

    def catch_up(self) -> None: ...

    def close(self) -> None: ...


class EventStream(Response):
    def __init__(self, request: HttpRequest, feed: Subscriber, seconds: float | None) -> None:
        super().__init__()
        self._until = math.inf if seconds is None else time.monotonic() + seconds
        self._request = request
        self._feed = feed
        self._recheck_at = time.monotonic() + BEAT_SECONDS

    async def __call__(self, _scope: Scope, _receive: Receive, send: Send) -> None:  # type: ignore[override]  # plain ASGI
        streams = self._request.server.metrics.feeds
        streams.inc()
        try:
            await send({"type": "http.response.start", "status": 200, "headers": list(_HEADERS)})
            await self._stream(send)
        finally:
            streams.dec()
            self._request.server.budget.feeds.give()
            self._feed.close()

    async def _stream(self, send: Send) -> None:
        request, feed = self._request, self._feed
        left: asyncio.Future[Any] = asyncio.ensure_future(request.left())
        try:
            beginning = b"retry: 1000\n" + _id(feed.id)
            if feed.gap is not None:
                beginning += b"event: gap\n" + _data(feed.gap)
            await _write(send, beginning + b"\n")
            while True:
                poll = Poll(feed.caller)
                request.server.polls.join(poll)
                left.add_done_callback(functools.partial(_left, poll))
                try:
                    await self._follow(send, poll)
                    return
                except PollOver as over:
                    if over.why != REVOKED:
                        return
                    await self._recheck()
                finally:
                    request.server.polls.leave(poll)
        except (Unauthorized, Forbidden) as error:
            await _write(send, b"event: end\n" + _data({"code": error.code}) + b"\n")
        except TampuError:  # the store cannot be reached; the client reconnects and continues
            return
        finally:
            left.cancel()
            await send({"type": "http.response.body", "body": b""})

    async def _follow(self, send: Send, poll: Poll) -> None:
        feed = self._feed
        while True:
            if feed.idle:
                arrived = asyncio.ensure_future(feed.wait())
                try:
                    left = self._until - time.monotonic()
                    if not await poll.until(arrived, max(0.0, min(BEAT_SECONDS, left))):
                        if left <= BEAT_SECONDS:
                            return
                        await self._recheck()
                        feed.catch_up()
                        await _write(send, b":\n" + _id(feed.id) + b"\n")
                        continue
                finally:
                    arrived.cancel()
            if poll.over is not None:
                raise PollOver(poll.over)
            if time.monotonic() >= self._recheck_at:
                await self._recheck()
            events = await feed.next()
            if events:
                await _write(send, b"".join(_id(id) + _data(transition) + b"\n" for transition, id in events))

    async def _recheck(self) -> None:
        """Authenticate the caller again: its key or session may have expired."""
        self._recheck_at = time.monotonic() + BEAT_SECONDS
        self._feed.caller = await self._request.readmit()
        self._feed.caller.need_somewhere("view")


def _left(poll: Poll, _done: asyncio.Future[Any]) -> None:
    poll.end(GONE)


async def _write(send: Send, body: bytes) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": True})


def _id(id: str | None) -> bytes:
    return b"" if id is None else b"id: %s\n" % id.encode()


def _data(value: Any) -> bytes:
    return b"data: %s\n" % _encode(value)
