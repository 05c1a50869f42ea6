"""`tampu mcp`: an MCP server over stdin and stdout, which a client of language models starts."""

from __future__ import annotations

import asyncio
from typing import Annotated

import tampu
from tampu.broker import access
from tampu.cli.app import command, option
from tampu.cli.lake.lake_option import LakePath
from tampu.cli.session import Session


@command("mcp", "Serve")
def mcp(
    session: Session,
    read_only: Annotated[bool, option("--read-only", "Offer no tool that changes something")] = False,
    lake: LakePath = None,
) -> None:
    """Let a language model look after the queues: an MCP server over stdin and stdout.

    Clients start it themselves; see docs/how-to/mcp.md. Of a server (http://…) it offers what the key may do.
    """
    try:
        from tampu.mcp.confirmations import Confirmations
        from tampu.mcp.context import FULL, Access, ToolContext
        from tampu.mcp.lake import lake_of
        from tampu.mcp.protocol import run_stdio
    except ImportError as error:
        raise tampu.InvalidConfig(f"MCP needs {error.name}", hint="pip install 'tampu[mcp]'") from error
    with session.open() as store:
        may = FULL
        if not access.is_local(store):
            from tampu.client.remote import who

            me = who(store)
            may = Access(frozenset(me.permissions), frozenset(me.everywhere), me.all_tenants)
        if read_only:
            may = may.read_only()
        path = lake_of(session.store, lake) if may.may("view", everywhere=True) else None
        if lake is not None and path is None:
            raise tampu.NotFound(
                f"there is no lake in {lake} that can be read", field="lake", hint="tampu pipeline run --once makes one"
            )

        async def serve() -> None:
            async_store = access.awaitable(store)
            try:
                await run_stdio(ToolContext(async_store, may, Confirmations(), lake=path))
            finally:
                await async_store.close()

        asyncio.run(serve())
