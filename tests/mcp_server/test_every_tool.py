"""Every tool, by a client of the official SDK, over each way to reach the server."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import tampu
from tests.mcp_server.clients import in_memory, over_http, over_stdio
from tests.mcp_server.walk import prepare, walk
from tests.servers.http import Stall


def test_every_tool_works_on_a_store_in_this_process() -> None:
    async def run() -> None:
        with tampu.open("memory://", maintenance=False) as store:
            ids = prepare(store)
            async with in_memory(store) as tools:
                await walk(tools, ids)

    asyncio.run(run())


def test_every_tool_works_over_stdio_on_a_file(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    with tampu.open(path, maintenance=False) as store:
        ids = prepare(store)

    async def run() -> None:
        async with over_stdio("--url", str(path)) as tools:
            await walk(tools, ids)

    asyncio.run(run())


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_every_tool_works_over_http_with_an_admin_key(stall: Stall, mode: str) -> None:
    with tampu.open(stall.url, token=stall.token) as store:
        ids = prepare(store)

    async def run() -> None:
        async with over_http(stall.url, stall.token, mode) as tools:
            await walk(tools, ids)
            # what was done is in the audit trail, in the name of the key
            (record,) = (await tools("list_audit", action="dead.purge"))["records"]
            assert record["actor"] == "admin"

    asyncio.run(run())


def test_every_tool_works_over_stdio_on_a_server(stall: Stall) -> None:
    with tampu.open(stall.url, token=stall.token) as store:
        ids = prepare(store)

    async def run() -> None:
        async with over_stdio("--url", stall.url, TAMPU_TOKEN=stall.token) as tools:
            await walk(tools, ids)

    asyncio.run(run())
