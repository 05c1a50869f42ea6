"""Workers: who holds messages now, which, and since when. Read from the leases of each queue."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from fastapi import Response

from tampu.broker.admin.verbs import MessagePage, Stats
from tampu.model.message import Message, State
from tampu.server.console.page import Page, View
from tampu.server.console.parts import stats_of

page = Page("workers", "Workers", group="3 Run")
_OF_QUEUE = 100
_MOST = 1000


@page.show("/workers")
async def workers(view: View) -> Response:
    name = view.query.get("name")
    stats: list[Stats] = [one for one in await stats_of(view) if one.leased]
    found: list[Message] = []
    for one in stats:
        page_of: MessagePage = await view.listing(
            view.verbs.messages(one.queue, state=State.LEASED, limit=_OF_QUEUE), len
        )
        found += page_of
        if len(found) >= _MOST:
            break
    running = sum(one.leased for one in stats)
    by_name: dict[str, list[Message]] = {}
    for message in found:
        if name in (None, message.worker):
            by_name.setdefault(message.worker or "", []).append(message)
    return await view.html(
        "workers.html",
        workers=[(each, _seen(held), held) for each, held in sorted(by_name.items())],
        name=name or "",
        count=len(found),
        running=running,
        may=lambda queue: view.may("operate", queue),
    )


def _seen(held: list[Message]) -> datetime | None:
    """The last sign of life."""
    times: list[Any] = [message.updated_at or message.started_at for message in held]
    return max((at for at in times if at is not None), default=None)
