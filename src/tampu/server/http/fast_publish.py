"""The fast path of publish: from the connection's parser to the commit and back, without a task and without ASGI.

Only for requests with a fast route (`publish.FastRoute`): the same key published to the same queue in the same format
a moment ago. uvicorn's protocol sees a `FastPublish` as the request in progress, so pipelining, keep-alive and graceful
shutdown work as for any request. Everything unusual takes the normal path.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

import structlog
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from tampu.engines.port import Publish
from tampu.model.errors import TampuError, Unavailable
from tampu.model.message import Message
from tampu.server.http import access_log
from tampu.server.http import raw_publish as raw
from tampu.server.http.request import internal_error, refused

if TYPE_CHECKING:
    from tampu.server.http.publish import FastRoute
    from tampu.server.server_state import ServerState

_MAX_BODY = 60_000
"""A larger body arrives in several reads; the normal path waits for them."""
_UNUSUAL = raw.HEADERS | {b"x-request-id", b"transfer-encoding", b"expect", b"upgrade", b"cookie"}
log = structlog.get_logger("tampu.server")


class _NoEvent:
    """Stands for uvicorn's event that wakes the reader of the body. There is no reader here."""

    @staticmethod
    def set() -> None: ...


def route_key(path: bytes, headers: dict[bytes, bytes]) -> tuple[Any, ...]:
    return (path, headers.get(b"authorization"), headers.get(b"content-type"), headers.get(b"accept"))


def find(server: ServerState, url: bytes, given: list[tuple[bytes, bytes]]) -> FastRoute | None:
    """The fast route of a request by its url and headers; None if it must take the normal path."""
    headers = dict(given)
    fast_route: FastRoute | None = server.fast_routes.get(route_key(url, headers))
    if fast_route is None or not headers.keys().isdisjoint(_UNUSUAL) or server.traced or server.polls.stopping:
        return None
    length = headers.get(b"content-length", b"")
    if not length.isdigit() or int(length) > min(_MAX_BODY, server.settings.max_body):
        return None
    return fast_route


class FastPublish:
    """One request, with the attributes that uvicorn's protocol expects of the request in progress."""

    __slots__ = (
        "_begun", "_fast_route", "_protocol", "_server", "body", "disconnected", "id", "keep_alive", "message_event",
        "more_body", "response_complete", "response_started",
    )  # fmt: skip

    def __init__(self, protocol: HttpToolsProtocol, server: ServerState, fast_route: FastRoute) -> None:
        self._protocol = protocol
        self._server = server
        self._fast_route = fast_route
        self._begun = time.perf_counter()
        self.id = server.request_id()
        self.body = bytearray()
        self.more_body = True
        self.keep_alive = True
        self.disconnected = False
        self.response_started = False
        self.response_complete = False
        self.message_event = _NoEvent

    def start(self) -> None:
        """Publish; called when the body is complete."""
        server, fast_route = self._server, self._fast_route
        try:
            if fast_route.caller.dropped:
                raise Unavailable("the key was changed during the request", hint="send it again")
            if not server.core.settings.knows(fast_route.caller.tenant, fast_route.queue) or fast_route.has_steps(
                server
            ):
                self._answer_later(self._store_later())
                return
            step = fast_route.step(server, bytes(self.body))
            if step is None:
                self.set_result([])
            elif isinstance(step, Publish):
                server.core.coalescer.submit_for(step, self)
            else:  # publish steps were configured a moment ago
                self._answer_later(server.core.do_async(step))
        except Exception as error:
            self.set_result(error)

    async def _store_later(self) -> list[Message]:
        server, fast_route = self._server, self._fast_route
        await server.load_settings(fast_route.caller.tenant, fast_route.queue)
        return await fast_route.store(server, functools.partial(fast_route.step, server, bytes(self.body)))

    def _answer_later(self, storing: Coroutine[Any, Any, list[Message]]) -> None:
        """Start a task that answers when the messages are stored."""

        async def answer() -> None:
            try:
                reply: list[Message] | Exception = await storing
            except Exception as error:
                reply = error
            self.set_result(reply)

        task = asyncio.ensure_future(answer())
        self._protocol.tasks.add(task)
        task.add_done_callback(self._protocol.tasks.discard)

    # -- the interface of a future, called by the coalescer

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._protocol.loop

    def done(self) -> bool:
        return self.response_complete

    def set_result(self, reply: Any) -> None:
        """The commit is done, or was refused."""
        try:
            if isinstance(reply, BaseException):
                raise reply
            status, body = self._fast_route.answer(self._server, reply)
            self._answer(status, self._fast_route.head, body)
        except TampuError as error:
            self._refuse(error)
        except Exception:
            log.exception("defect", request_id=self.id, route=self._fast_route.route)
            self._refuse(internal_error())

    def _refuse(self, error: TampuError) -> None:
        reply = refused(self._server, self.id, error)
        head = b"".join(b"%s: %s\r\n" % pair for pair in reply.headers if pair[0] != b"content-length")
        self._answer(reply.status, head, reply.body)

    def _answer(self, status: int, head: bytes, body: bytes) -> None:
        self.response_complete = self.response_started = True
        protocol, metrics, route = self._protocol, self._server.metrics, self._fast_route.route
        metrics.requests.add((route, str(status)))
        took = time.perf_counter() - self._begun
        metrics.seconds.add(took, route)
        if status >= 500:
            subject = access_log.Subject()
            subject.add((self._fast_route.queue,))
            access_log.write(self.id, "POST", route, status, took, self._fast_route.caller, subject)
        if self.disconnected or protocol.transport.is_closing():
            return
        defaults = b"".join(b"%s: %s\r\n" % pair for pair in protocol.server_state.default_headers)
        end = b"\r\n" if self.keep_alive else b"connection: close\r\n\r\n"
        protocol.transport.write(
            b"%s%s%scontent-length: %d\r\nx-request-id: %s\r\n%s%s"
            % (STATUS_LINE[status], defaults, head, len(body), self.id.encode(), end, body)
        )
        if not self.keep_alive:
            protocol.transport.close()
        protocol.on_response_complete()
