"""MCP over HTTP (streamable HTTP, without sessions): what `tampu.mcp` offers, with the caller's key.

Each request is answered on its own with JSON, so any node answers it and nothing is kept between two of them.
"""

from __future__ import annotations

import asyncio
import functools
import importlib
from typing import Any

from fastapi import APIRouter, Response

from tampu.model.errors import NotFound
from tampu.server import confirmation_secret
from tampu.server.auth import origin
from tampu.server.auth.grants import Caller
from tampu.server.http.request import MAX_SMALL_BODY, HttpRequest
from tampu.server.in_process import store_of
from tampu.server.routes.common import CurrentCaller, CurrentRequest

router = APIRouter(tags=["mcp"])


@router.post("/mcp", operation_id="mcp", include_in_schema=False)
async def mcp(request: CurrentRequest, caller: CurrentCaller) -> Response:
    """One message of the Model Context Protocol."""
    origin.check_site(request.headers)  # also for keys: a page of another site has no business here
    handle = await asyncio.to_thread(_protocol)  # imports much, at the first call
    body = await request.body(min(MAX_SMALL_BODY, request.server.settings.max_body))
    await request.spend(caller, 1)
    return await request.until_left(_answer(request, caller, body, handle))


@functools.cache
def _protocol() -> Any:
    try:
        return importlib.import_module("tampu.mcp.http")
    except ImportError as error:
        raise NotFound(
            f"this server has no MCP: {error.name} is not installed", hint="pip install 'tampu[mcp]' where it runs"
        ) from None


async def _answer(request: HttpRequest, caller: Caller, body: bytes, protocol: Any) -> Response:
    from tampu.mcp.confirmations import Confirmations
    from tampu.mcp.context import Access, ToolContext
    from tampu.mcp.lake import lake_of

    server = request.server
    everywhere = frozenset(one for one in caller.permissions if caller.everywhere(one))
    signed_for = f"{caller.tenant}/{caller.key_id or caller.name}"
    at = ToolContext(
        store_of(request, caller),
        Access(frozenset(caller.permissions), everywhere, await server.of_all_tenants(caller)),
        Confirmations(await confirmation_secret.secret_of(server.core), signed_for),
        lake=lake_of(server.settings.url, server.settings.lake) if "view" in everywhere else None,
        offload=functools.partial(server.listings.call, caller),
    )
    status, headers, answer = await protocol.handle(at, request.scope, body)
    response = Response(answer, status)
    response.raw_headers = headers
    return response
