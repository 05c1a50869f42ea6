"""The store as a caller of this server sees it: each verb is a request of the server to itself, with its headers.

So what acts for a caller, such as the MCP server, has exactly what the caller may do: the same authentication, tenant,
permissions, rate limits, bounds and audit trail as over the network.
"""

from __future__ import annotations

import asyncio
import urllib.parse
from typing import Any

from tampu.broker import access
from tampu.broker.async_store import AsyncStore
from tampu.broker.core import StepRunner
from tampu.broker.store import Store
from tampu.client.all_verbs import AllRemoteVerbs, NoSettings, RemoteEngine, read_reply
from tampu.client.request import Nap, Request
from tampu.model.message import MSGPACK
from tampu.server.auth.grants import Caller
from tampu.server.http.request import APP, HttpRequest, Pairs, Scope

_PASSED_ON = (b"authorization", b"cookie", b"host", b"tampu-tenant", b"traceparent", b"tracestate")
"""Headers that say who calls, and for what."""


class InProcessCore(StepRunner):
    def __init__(self, request: HttpRequest) -> None:
        super().__init__()
        self.settings = NoSettings()
        self.engine = RemoteEngine(request.server.core.engine.durability)
        self._scope = request.scope
        media = MSGPACK.encode()
        self._headers: Pairs = [(name, request.headers[name]) for name in _PASSED_ON if name in request.headers]
        self._headers += [(b"accept", media), (b"content-type", media), (b"x-request-id", request.id.encode())]

    async def do_async(self, step: Request | Nap) -> Any:
        if isinstance(step, Nap):
            await asyncio.sleep(step.seconds)
            return None
        return read_reply(step, *await self._send(step))

    async def _send(self, step: Request) -> tuple[int, bytes]:
        """(status, body)"""
        path, _, query = step.path.partition("?")
        body = step.body or b""
        scope: Scope = {
            "type": "http", "asgi": self._scope["asgi"], "http_version": "1.1", "method": step.method,
            "scheme": self._scope["scheme"], "path": urllib.parse.unquote(path), "raw_path": path.encode(),
            "query_string": query.encode(), "root_path": "", "client": self._scope.get("client"),
            "server": self._scope.get("server"), "state": {},
            "headers": [*self._headers, (b"content-length", b"%d" % len(body))],
        }  # fmt: skip
        to_read = [{"type": "http.request", "body": body, "more_body": False}]
        status, parts = 500, []

        async def receive() -> dict[str, Any]:
            if to_read:
                return to_read.pop()
            return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]  # it never leaves

        async def send(message: dict[str, Any]) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            else:
                parts.append(message.get("body", b""))

        await self._scope[APP](scope, receive, send)
        return status, b"".join(parts)


def _nothing() -> None:
    """The server closes its store itself."""


def store_of(request: HttpRequest, caller: Caller) -> AsyncStore:
    """The caller's store. It needs no ``async with``, and no close."""
    core: Any = InProcessCore(request)
    return access.awaitable(Store(core, caller.tenant, on_close=_nothing, verbs=AllRemoteVerbs))
