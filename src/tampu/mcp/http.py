"""One request of streamable HTTP, answered by the SDK without a session."""

from __future__ import annotations

import asyncio
from typing import Any

from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

from tampu.mcp.context import ToolContext
from tampu.mcp.protocol import make_server

Headers = list[tuple[bytes, bytes]]


async def handle(at: ToolContext, scope: dict[str, Any], body: bytes) -> tuple[int, Headers, bytes]:
    """(status, headers, body) of the response to a request whose body was read, within the server's limits."""
    to_read = [{"type": "http.request", "body": body, "more_body": False}]
    status, headers, parts = 500, [], []

    async def receive() -> dict[str, Any]:
        if to_read:
            return to_read.pop()
        return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]  # the server cancels

    async def send(message: Any) -> None:
        nonlocal status, headers
        if message["type"] == "http.response.start":
            status, headers = message["status"], list(message.get("headers", ()))
        else:
            parts.append(message.get("body", b""))

    # One manager for each request: it costs little, and nothing of one caller reaches another.
    manager = StreamableHTTPSessionManager(
        make_server(at), json_response=True, stateless=True, max_request_body_size=max(1, len(body))
    )
    async with manager.run():
        await manager.handle_request(scope, receive, send)
    return status, headers, b"".join(parts)
