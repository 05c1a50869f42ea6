"""All queues."""

from __future__ import annotations

from fastapi import Response

from tampu.broker import validate
from tampu.server.console.page import Ask, Page, View
from tampu.server.console.parts import quoted, stats_of

page = Page("queues", "Queues", group="1")
_SHOWN = 200


@page.show("/queues")
async def queues(view: View) -> Response:
    part = view.query.get("name", "")
    stats = [one for one in await stats_of(view) if part in one.queue]
    shown = stats[:_SHOWN]
    last = view.request.server.last_hour
    await view.read(last.read)
    return await view.html(
        "queues.html",
        busiest=shown,
        count=len(stats),
        part=part,
        hours={one.queue: last.hour(view.caller.tenant, {one.queue: one.depth}) for one in shown},
        may_make=view.caller.somewhere("operate"),
    )


@page.act("/put/queues")
async def new(view: View) -> Ask:
    view.caller.need_somewhere("operate")

    async def do() -> Response:
        name = validate.name(view.form.get("name", ""), "name")
        view.need("operate", name)
        await view.drive(view.verbs.put_config(name))
        return view.done(f"Made the queue {name}.", f"queues/{quoted(name)}")

    return Ask(
        title="A new queue", text="The first message of a queue makes it too.", button="Make it", do=do,
        template="queue_new.html", back="queues",
    )  # fmt: skip
