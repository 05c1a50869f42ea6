"""The outermost ASGI application: gives each request its id, takes the hot verbs past the framework, tells problems.

Publish, claim, settle and extend go straight to their handlers; everything else is FastAPI's. Both end here, so that
every answer has its request id, every error is a problem, and every request is counted.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any

import structlog

from tampu import tracing
from tampu.model.errors import TampuError
from tampu.server import logs, worker_streams
from tampu.server.http import access_log
from tampu.server.http.error_response import refused
from tampu.server.http.request import (
    KEY,
    LARGE,
    SERVER,
    Disconnected,
    Handler,
    HttpRequest,
    Receive,
    Reply,
    Scope,
    Send,
)
from tampu.server.server_state import ServerState
from tampu.wire.problems import Internal

App = Callable[[Any, Any, Any], Awaitable[None]]
log = structlog.get_logger("tampu.server")


class AsgiApp:
    def __init__(
        self, server: ServerState, framework: App, exact: dict[str, Handler], of_queue: dict[str, Handler]
    ) -> None:
        self.server = server
        self.framework = framework
        self._exact = exact
        """Handlers of POST, by path."""
        self._of_queue = of_queue
        """Handlers of POST /v1/queues/{queue}/…, by the last part."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        if scope["type"] != "http":
            if scope["path"] == worker_streams.PATH:
                id = self.server.request_id()
                logs.REQUEST.set(id)
                await worker_streams.serve(self.server, id, scope, receive, send)
                return
            scope[SERVER] = self.server
            await self.framework(scope, receive, send)
            return
        request = HttpRequest(self.server, scope, receive)
        logs.REQUEST.set(request.id)
        try:
            if LARGE in scope:
                request.check_headers()
            handler, arguments = self._hot(scope, request)
            if handler is None:
                await self._cold(request, scope, receive, send)
            else:
                await self._send(request, await handler(request, *arguments), send)
        except Disconnected:
            request.status = 499
        except TampuError as error:
            await self._send(request, self.refuse(request, error), send)
        except Exception:
            log.exception("defect", request_id=request.id, route=request.route)
            if not request.status:
                await self._send(request, self.refuse(request, Internal("the server made a mistake")), send)
            elif request.status != 500:  # the answer has begun: the client must see that it broke off
                raise
        finally:
            self._count(request)

    async def _live(self, receive: Receive, send: Send) -> None:
        """Run the node's background work from the start of the server to its end."""
        async with self.server.running():
            while True:
                message = await receive()
                await send({"type": f"{message['type']}.complete"})
                if message["type"] == "lifespan.shutdown":
                    return

    def _hot(self, scope: Scope, request: HttpRequest) -> tuple[Handler | None, tuple[str, ...]]:
        if scope["method"] != "POST":
            return None, ()
        path: str = scope["path"]
        handler = self._exact.get(path)
        if handler is not None:
            request.route = path
            return handler, ()
        if path.startswith("/v1/queues/"):
            queue, _, last = path[11:].partition("/")
            handler = self._of_queue.get(last)
            if handler is not None:
                request.route = f"/v1/queues/{{queue}}/{last}"
                request.subject.add((queue,))
                return handler, (queue,)
        return None, ()

    async def _cold(self, request: HttpRequest, scope: Scope, receive: Receive, send: Send) -> None:
        scope[KEY] = request

        async def noting(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                request.status = message["status"]
                message["headers"] = [*message.get("headers", ()), *self._common(request)]
            await send(message)

        try:
            await self.framework(scope, receive, noting)
        finally:
            request.route = getattr(scope.get("route"), "path", "other")
            self._note_path(request, scope.get("path_params", {}))

    @staticmethod
    def _note_path(request: HttpRequest, named: dict[str, Any]) -> None:
        if "queue" in named:
            request.subject.add(queues=(named["queue"],))
        if "/messages/{id}" in request.route:
            request.subject.add(ids=(named["id"],))

    async def _send(self, request: HttpRequest, reply: Reply, send: Send) -> None:
        request.status = reply.status
        await send(
            {"type": "http.response.start", "status": reply.status, "headers": [*reply.headers, *self._common(request)]}
        )
        await send({"type": "http.response.body", "body": reply.body})

    @staticmethod
    def _common(request: HttpRequest) -> list[tuple[bytes, bytes]]:
        headers = [(b"x-request-id", request.id.encode())]
        if request.quota is not None:
            headers += [(name.encode(), value.encode()) for name, value in request.quota.headers().items()]
        return headers

    @staticmethod
    def refuse(request: HttpRequest, error: TampuError) -> Reply:
        return refused(request.server, request.id, error)

    def _count(self, request: HttpRequest) -> None:
        metrics = self.server.metrics
        metrics.requests.add((request.route, str(request.status)))
        took = time.perf_counter() - request.started
        metrics.seconds.add(took, request.route)
        if request.span is not None:
            tracing.answered(request.span, request.scope["method"], request.route, request.status)
        if self.server.settings.access_log or request.status >= 500:
            access_log.write(
                request.id,
                request.scope["method"],
                request.route,
                request.status,
                took,
                request.caller,
                request.subject,
            )
