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
from tampu.server import access_log, logs, streams
from tampu.server.call import KEY, LARGE, NODE, Call, Disconnected, Handler, Receive, Reply, Scope, Send
from tampu.server.node import Node
from tampu.server.refusing import refused
from tampu.wire.problems import Internal

App = Callable[[Any, Any, Any], Awaitable[None]]
log = structlog.get_logger("tampu.server")


class Front:
    def __init__(self, node: Node, framework: App, exact: dict[str, Handler], of_queue: dict[str, Handler]) -> None:
        self.node = node
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
            if scope["path"] == streams.PATH:
                id = self.node.request_id()
                logs.REQUEST.set(id)
                await streams.serve(self.node, id, scope, receive, send)
                return
            scope[NODE] = self.node
            await self.framework(scope, receive, send)
            return
        call = Call(self.node, scope, receive)
        logs.REQUEST.set(call.id)
        try:
            if LARGE in scope:
                call.check_headers()
            handler, arguments = self._hot(scope, call)
            if handler is None:
                await self._cold(call, scope, receive, send)
            else:
                await self._send(call, await handler(call, *arguments), send)
        except Disconnected:
            call.status = 499
        except TampuError as error:
            await self._send(call, self.refuse(call, error), send)
        except Exception:
            log.exception("defect", request_id=call.id, route=call.route)
            if not call.status:
                await self._send(call, self.refuse(call, Internal("the server made a mistake")), send)
            elif call.status != 500:  # the answer has begun: the client must see that it broke off
                raise
        finally:
            self._count(call)

    async def _live(self, receive: Receive, send: Send) -> None:
        """Run the node's background work from the start of the server to its end."""
        async with self.node.running():
            while True:
                message = await receive()
                await send({"type": f"{message['type']}.complete"})
                if message["type"] == "lifespan.shutdown":
                    return

    def _hot(self, scope: Scope, call: Call) -> tuple[Handler | None, tuple[str, ...]]:
        if scope["method"] != "POST":
            return None, ()
        path: str = scope["path"]
        handler = self._exact.get(path)
        if handler is not None:
            call.route = path
            return handler, ()
        if path.startswith("/v1/queues/"):
            queue, _, last = path[11:].partition("/")
            handler = self._of_queue.get(last)
            if handler is not None:
                call.route = f"/v1/queues/{{queue}}/{last}"
                call.subject.add((queue,))
                return handler, (queue,)
        return None, ()

    async def _cold(self, call: Call, scope: Scope, receive: Receive, send: Send) -> None:
        scope[KEY] = call

        async def noting(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                call.status = message["status"]
                message["headers"] = [*message.get("headers", ()), *self._common(call)]
            await send(message)

        try:
            await self.framework(scope, receive, noting)
        finally:
            call.route = getattr(scope.get("route"), "path", "other")
            self._note_path(call, scope.get("path_params", {}))

    @staticmethod
    def _note_path(call: Call, named: dict[str, Any]) -> None:
        if "queue" in named:
            call.subject.add(queues=(named["queue"],))
        if "/messages/{id}" in call.route:
            call.subject.add(ids=(named["id"],))

    async def _send(self, call: Call, reply: Reply, send: Send) -> None:
        call.status = reply.status
        await send(
            {"type": "http.response.start", "status": reply.status, "headers": [*reply.headers, *self._common(call)]}
        )
        await send({"type": "http.response.body", "body": reply.body})

    @staticmethod
    def _common(call: Call) -> list[tuple[bytes, bytes]]:
        headers = [(b"x-request-id", call.id.encode())]
        if call.room is not None:
            headers += [(name.encode(), value.encode()) for name, value in call.room.headers().items()]
        return headers

    @staticmethod
    def refuse(call: Call, error: TampuError) -> Reply:
        return refused(call.node, call.id, error)

    def _count(self, call: Call) -> None:
        metrics = self.node.metrics
        metrics.requests.add((call.route, str(call.status)))
        took = time.perf_counter() - call.started
        metrics.seconds.add(took, call.route)
        if call.span is not None:
            tracing.answered(call.span, call.scope["method"], call.route, call.status)
        if self.node.settings.access_log or call.status >= 500:
            access_log.write(call.id, call.scope["method"], call.route, call.status, took, call.who, call.subject)
