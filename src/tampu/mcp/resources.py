"""Resources: queues and messages by uri."""

from __future__ import annotations

import urllib.parse
from typing import Any

from tampu.mcp import views
from tampu.mcp.context import ToolContext
from tampu.mcp.inspect_tools import get_settings, stats_of
from tampu.model.errors import NotFound

QUEUES = "tampu://queues/"
MESSAGES = "tampu://messages/"
_MOST = 100
_LOOK = 10


async def queue_names(at: ToolContext, after: str | None) -> tuple[list[str], str | None]:
    """(names of queues, the cursor of the next page)"""
    names = [one.queue for one in await stats_of(at, "*") if after is None or one.queue > after]
    return names[:_MOST], names[_MOST - 1] if len(names) > _MOST else None


def uri_of(queue: str) -> str:
    return QUEUES + urllib.parse.quote(queue, safe="")


async def read(at: ToolContext, uri: str) -> Any:
    """What is behind a uri."""
    if uri.startswith(QUEUES) and (queue := urllib.parse.unquote(uri[len(QUEUES) :])):
        found = await at.store.messages(queue, limit=_LOOK)
        settings = (await get_settings(at, queue))["settings"]
        return {
            "stats": views.stats(await at.store.stats(queue)),
            "own_settings": {name: one for name, one in settings.items() if one["from"] != "built in"},
            "first_messages": [views.brief(m) for m in found.messages],
        }
    if uri.startswith(MESSAGES) and (id := urllib.parse.unquote(uri[len(MESSAGES) :])):
        return views.full(await at.store.get(id))
    raise NotFound(f"no resource {uri:.200}", hint=f"there are {QUEUES}{{name}} and {MESSAGES}{{id}}")
