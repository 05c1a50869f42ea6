"""The event feed: what the journal tells, as server-sent events, for as long as the caller may hear it."""

from __future__ import annotations

import asyncio
import functools
import math
import time
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Query, Response

from tampu.broker import validate
from tampu.model.errors import Forbidden, TampuError, Unauthorized
from tampu.model.message import State
from tampu.server.events import positions
from tampu.server.events.feed import Feed, Filter
from tampu.server.http.long_polls import GONE, REVOKED, Poll, PollOver
from tampu.server.http.openapi import doc
from tampu.server.http.request import HttpRequest, Receive, Scope, Send
from tampu.server.routes.common import CurrentCaller, CurrentRequest

router = APIRouter(prefix="/v1", tags=["looking"])
BEAT_SECONDS = 15.0
"""After so long without an event something is sent all the same, so that the way stays open; and as often the caller is
looked at again, however much there is to tell."""
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
    queue: Annotated[Names, Query(description="Only of these queues; * stands for any characters")] = [],  # noqa: B006 - read only
    type: Annotated[Names, Query(description="Only of messages of these types; * as above")] = [],  # noqa: B006 - read only
    verb: Annotated[Names, Query(description="Only what these verbs did")] = [],  # noqa: B006 - read only
    state: Annotated[list[State], Query(max_length=10, description="Only what led to these states")] = [],  # noqa: B006 - read only
    after: Annotated[str | None, Query(max_length=30_000, description="As Last-Event-ID, for the first time")] = None,
    seconds: Annotated[float | None, Query(ge=0, le=86_400, description="End after so long; 0: what there is")] = None,
) -> Response:
    """What happens, as it happens: each event is a transition, as the journal tells it.

    Goes on after ``Last-Event-ID`` without a gap, else from now on. An event ``gap`` says that something is missing
    because the journal does not keep it any more; an event ``end``, why the server closes the feed.
    """
    caller.need_somewhere("view")
    for name in queue:
        if "*" not in name:
            caller.need("view", validate.name(name, "queue"))
    last = request.headers.get(b"last-event-id")
    begin = after if last is None else last.decode("latin-1")
    feed = Feed(request.server.tail, caller, Filter(queue, type, verb, state), request.server.types)
    try:
        await feed.open(None if begin is None else positions.read(begin))
    except BaseException:
        feed.close()
        raise
    return EventStream(request, feed, seconds)


class EventStream(Response):
    def __init__(self, request: HttpRequest, feed: Feed, seconds: float | None) -> None:
        super().__init__()
        self._until = math.inf if seconds is None else time.monotonic() + seconds
        self._request = request
        self._feed = feed
        self._ask_at = time.monotonic() + BEAT_SECONDS

    async def __call__(self, _scope: Scope, _receive: Receive, send: Send) -> None:  # type: ignore[override]  # plain ASGI
        streams = self._request.server.metrics.feeds
        streams.inc()
        try:
            await send({"type": "http.response.start", "status": 200, "headers": list(_HEADERS)})
            await self._tell(send)
        finally:
            streams.dec()
            self._feed.close()

    async def _tell(self, send: Send) -> None:
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
                    await self._ask_again()
                finally:
                    request.server.polls.leave(poll)
        except (Unauthorized, Forbidden) as error:
            await _write(send, b"event: end\n" + _data({"code": error.code}) + b"\n")
        except TampuError:  # the store is away; the client comes back to where it was
            return
        finally:
            left.cancel()
            await send({"type": "http.response.body", "body": b""})

    async def _follow(self, send: Send, poll: Poll) -> None:
        feed = self._feed
        while True:
            if feed.idle:
                came = asyncio.ensure_future(feed.wait())
                try:
                    left = self._until - time.monotonic()
                    if not await poll.until(came, max(0.0, min(BEAT_SECONDS, left))):
                        if left <= BEAT_SECONDS:
                            return
                        await self._ask_again()
                        feed.catch_up()
                        await _write(send, b":\n" + _id(feed.id) + b"\n")
                        continue
                finally:
                    came.cancel()
            if poll.over is not None:
                raise PollOver(poll.over)
            if time.monotonic() >= self._ask_at:
                await self._ask_again()
            told = await feed.next()
            if told:
                await _write(send, b"".join(_id(id) + _data(transition) + b"\n" for transition, id in told))

    async def _ask_again(self) -> None:
        """May the caller still hear this? A key or a session can end without anybody's doing."""
        self._ask_at = time.monotonic() + BEAT_SECONDS
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
