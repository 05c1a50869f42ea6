"""The outermost ASGI application: request ids, error responses, metrics, and the choice of the handler.

Publish, claim, settle and extend go straight to their handlers; everything else goes to FastAPI. Both return here, so
every response has a request id, every error is a problem, and every request is counted.
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
from tampu.server.http.request import (
    APP,
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
    internal_error,
    refused,
)
from tampu.server.server_state import ServerState
from tampu.server.sqs import handler as sqs

App = Callable[[Any, Any, Any], Awaitable[None]]
log = structlog.get_logger("tampu.server")


class AsgiApp:
    def __init__(
        self, server: ServerState, framework: App, exact: dict[str, Handler], of_queue: dict[str, Handler]
    ) -> None:
        self.server = server
        self.framework = framework
        self._exact = exact
        """POST handlers by path."""
        self._of_queue = of_queue
        """Handlers of POST /v1/queues/{queue}/…, by the last part of the path."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
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
            handler, arguments = self._find_handler(scope, request)
            if handler is None:
                await self._call_framework(request, scope, receive, send)
            else:
                await self._send(request, await handler(request, *arguments), send)
        except Disconnected:
            request.status = 499
        except TampuError as error:
            await self._send(request, refused(self.server, request.id, error), send)
        except Exception:
            log.exception("defect", request_id=request.id, route=request.route)
            if not request.status:
                await self._send(request, refused(self.server, request.id, internal_error()), send)
            elif request.status != 500:  # the response has begun: break the connection, so that the client notices
                raise
        finally:
            request.release()
            self._count(request)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        """Run the background work from startup to shutdown."""
        async with self.server.running():
            while True:
                message = await receive()
                await send({"type": f"{message['type']}.complete"})
                if message["type"] == "lifespan.shutdown":
                    return

    def _find_handler(self, scope: Scope, request: HttpRequest) -> tuple[Handler | None, tuple[str, ...]]:
        """(handler, its arguments) for a frequent verb; (None, ()) if the framework handles the request."""
        if scope["method"] != "POST":
            return None, ()
        path: str = scope["path"]
        handler = self._exact.get(path)
        if handler is not None:
            request.route = path
            return handler, ()
        if sqs.is_for(path, request.headers):
            request.route = sqs.PATH
            return sqs.handle, ()
        if path.startswith("/v1/queues/"):
            queue, _, last = path[11:].partition("/")
            handler = self._of_queue.get(last)
            if handler is not None:
                request.route = f"/v1/queues/{{queue}}/{last}"
                request.subject.add((queue,))
                return handler, (queue,)
        return None, ()

    async def _call_framework(self, request: HttpRequest, scope: Scope, receive: Receive, send: Send) -> None:
        scope[KEY] = request
        scope[APP] = self

        async def send_with_headers(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                request.status = message["status"]
                message["headers"] = [*message.get("headers", ()), *self._common(request)]
            await send(message)

        try:
            await self.framework(scope, receive, send_with_headers)
        finally:
            request.route = getattr(scope.get("route"), "path", "other")
            self._add_subject(request, scope.get("path_params", {}))

    @staticmethod
    def _add_subject(request: HttpRequest, path_params: dict[str, Any]) -> None:
        if "queue" in path_params:
            request.subject.add(queues=(path_params["queue"],))
        if "/messages/{id}" in request.route:
            request.subject.add(ids=(path_params["id"],))

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
