"""The official SDK's client, over each way that it can reach tampu, and what a test reads of its answers."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
from mcp import Client
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

import tampu
from tampu.broker import access
from tampu.mcp.confirmations import Confirmations
from tampu.mcp.context import FULL, ToolContext
from tampu.mcp.protocol import make_server

SRC = Path(__file__).parents[2] / "src"


class Tools:
    """Calls tools, and decodes their answers."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.called: set[str] = set()

    async def __call__(self, name: str, /, **arguments: Any) -> Any:
        """The answer of a call that must succeed."""
        failed, found = await self.raw(name, **arguments)
        assert not failed, found
        return found

    async def error(self, name: str, /, **arguments: Any) -> Any:
        """The error of a call that must be refused."""
        failed, found = await self.raw(name, **arguments)
        assert failed, found
        assert found["error"]["message"]
        return found["error"]

    async def raw(self, name: str, /, **arguments: Any) -> tuple[bool, Any]:
        self.called.add(name)
        answer = await self.client.call_tool(name, arguments)
        (content,) = answer.content
        return answer.is_error, json.loads(content.text)  # type: ignore[union-attr]  # it is text

    async def confirmed(self, name: str, /, **arguments: Any) -> Any:
        """Both steps; the answer of the second."""
        token = (await self(name, **arguments))["confirm"]
        return await self(name, **arguments, confirm=token)

    async def names(self) -> list[str]:
        return [one.name for one in (await self.client.list_tools()).tools]


@contextlib.asynccontextmanager
async def over_stdio(*arguments: str, **environment: str) -> AsyncIterator[Tools]:
    """`tampu mcp` in a process of its own."""
    program = "from tampu.cli.main import main; main()"
    started = StdioServerParameters(
        command=sys.executable,
        args=["-c", program, "mcp", *arguments],
        env={"PYTHONPATH": str(SRC), "PATH": os.environ["PATH"], **environment},
    )
    async with Client(started) as client:
        yield Tools(client)


@contextlib.asynccontextmanager
async def over_http(url: str, token: str | None = None, mode: str = "auto", **headers: str) -> AsyncIterator[Tools]:
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    if token is not None:
        given["authorization"] = f"Bearer {token}"
    async with (
        httpx2.AsyncClient(headers=given, timeout=60) as http,
        Client(streamable_http_client(f"{url}/mcp", http_client=http), mode=mode) as client,
    ):
        yield Tools(client)


@contextlib.asynccontextmanager
async def in_memory(store: tampu.Store, **context: Any) -> AsyncIterator[Tools]:
    """Without a transport, for what does not depend on it."""
    given = {"access": FULL, "confirmations": Confirmations(), **context}
    async with Client(make_server(ToolContext(access.awaitable(store), **given))) as client:
        yield Tools(client)
