"""One queue: its last hour, what is in it, its settings and where they come from, its schedules and subscriptions."""

from __future__ import annotations

from typing import Any

from fastapi import Response

from tampu.broker.admin.verbs import Stats
from tampu.broker.policies.definitions import Kind
from tampu.broker.policies.rules.verbs import RULES
from tampu.broker.policies.schemas.verbs import SCHEMAS
from tampu.broker.validate import any_queue
from tampu.model.config import FIELDS, SYSTEM
from tampu.model.definitions import Schema
from tampu.model.errors import InvalidMessage, InvalidState, TampuError
from tampu.model.message import BYTES, TEXT, State
from tampu.model.states import TERMINAL
from tampu.model.times import seconds_of
from tampu.server.console import settings_form
from tampu.server.console.page import Ask, Page, View
from tampu.server.console.parts import (
    hour_of,
    json_field,
    labels_field,
    number_field,
    plural,
    pretty,
    quoted,
    rates,
    times,
)
from tampu.server.routes.admin import charge_moved
from tampu.server.routes.definitions import may_all_places

page = Page("queues", "Queues", listed=False)
_STATUS = {
    "pause": ("Pause", "Workers get nothing more from it until it is resumed. Publishing still works.", "paused"),
    "resume": ("Resume", "It delivers and accepts messages again.", "resumed"),
    "drain": ("Drain", "It accepts no new messages; those in it are delivered.", "draining"),
    "close": ("Close", "It neither delivers nor accepts messages until it is resumed.", "closed"),
}


@page.show("/queues/{queue}")
async def show(view: View, queue: str) -> Response:
    any_queue(queue)
    view.need("view", queue)
    stats: Stats = await view.drive(view.verbs.stats(queue))
    hour = await hour_of(view, [stats])
    config = await view.drive(view.verbs.get_config(queue))
    sources = await view.drive(view.verbs.config_sources(queue))
    schedules = [one for one in await view.drive(view.verbs.list_schedules()) if one.queue == queue]
    subscriptions = await view.drive(view.verbs.list_subscriptions(queue))
    schemas = await _about(view, SCHEMAS, queue)
    rules = await _about(view, RULES, queue)
    return await view.html(
        "queue.html",
        queue=queue,
        stats=stats,
        states=list(State),
        hour=hour,
        rates=rates(hour),
        waits=times(hour.waits),
        runs=times(hour.runs),
        groups=settings_form.GROUPS,
        config={name: settings_form.shown(name, getattr(config, name)) for name in FIELDS},
        sources=sources,
        schedules=schedules,
        subscriptions=subscriptions,
        schemas=schemas,
        rules=rules,
        system=queue.startswith(SYSTEM),
    )


async def _about(view: View, kind: Kind[Any], queue: str) -> list[Any]:
    """The definitions of a kind that apply to the queue, if the caller may view all that they are about."""
    found = await view.drive(view.verbs.list_definitions(kind))
    return [one for one in found if one.applies_to(queue) and may_all_places(view.caller, "view", kind, one)]


@page.act("/queues/{queue}/settings")
async def settings(view: View, queue: str) -> Ask:
    any_queue(queue)
    view.need("operate", queue)
    own = await view.drive(view.verbs.get_config(queue, inherited=False))
    inherited = await view.drive(view.verbs.get_config(queue))
    sources = await view.drive(view.verbs.config_sources(queue))
    before = {name: settings_form.written(getattr(own, name)) for name in FIELDS}
    shown = settings_form.shown_before(view.form)

    async def do() -> Response:
        after = {name: view.form.get(name, "") for name in FIELDS if name in view.form or name in shown}
        changed = {
            name: settings_form.read(name, text) if text else None
            for name, text in after.items()
            if text != shown.get(name, before[name])
        }
        if target := changed.get("dead_letter_to"):
            view.need("operate", target)
        if changed:
            await view.drive(view.verbs.put_config(queue, **changed))
        what = ", ".join(changed) or "nothing"
        return view.done(f"Changed {what}.", f"queues/{quoted(queue)}")

    return Ask(
        title=f"Settings of {queue}", button="Save", do=do, template="queue_settings.html",
        text="An empty field inherits. Durations are seconds, or such as 5m and 1h30m.",
        values={
            "fields": before if not view.form else {name: view.form.get(name, "") for name in FIELDS},
            "shown": before | shown,
            "inherited": {name: settings_form.written(getattr(inherited, name)) for name in FIELDS},
            "sources": sources, "groups": settings_form.GROUPS, "options": settings_form.CHOICES,
        },
        back=f"queues/{quoted(queue)}",
    )  # fmt: skip


@page.act("/queues/{queue}/status/{verb}")
async def status(view: View, queue: str, verb: str) -> Ask:
    any_queue(queue)
    view.need("operate", queue)
    if verb not in _STATUS:
        raise InvalidState(f"{verb} is not an act of a queue", hint=f"acts are {', '.join(_STATUS)}")
    word, text, after = _STATUS[verb]
    stats: Stats = await view.drive(view.verbs.stats(queue))

    async def do() -> Response:
        await view.drive(getattr(view.verbs, "close_queue" if verb == "close" else verb)(queue))
        return view.done(f"{queue} is {after}.", f"queues/{quoted(queue)}")

    return Ask(
        title=f"{word} {queue}?", text=f"{text} {plural(stats.depth, 'message')} in it.",
        button=word, danger=verb == "close", do=do, back=f"queues/{quoted(queue)}",
    )  # fmt: skip


@page.act("/queues/{queue}/publish")
async def publish(view: View, queue: str) -> Ask:
    any_queue(queue)
    view.need("publish", queue)
    await view.request.server.load_settings(view.caller.tenant, queue)

    async def do() -> Response:
        form = view.form
        kind = form.get("content", "json")
        payload: Any = json_field(form, "payload") if kind == "json" else form.get("payload", "")
        if kind == "base64":
            try:
                import base64

                payload = base64.b64decode(payload, validate=True)
            except ValueError:
                raise InvalidMessage("payload is not Base64", field="payload") from None
        made = await view.drive(
            view.verbs.publish(
                queue,
                payload,
                type=form.get("type"),
                priority=number_field(form, "priority") or 0,
                delay=None if "delay" not in form else seconds_of(form["delay"], "delay"),
                key=form.get("key"),
                group=form.get("group"),
                labels=labels_field(form),
                correlation_id=form.get("correlation_id"),
                content_type={"text": TEXT, "base64": BYTES}.get(kind),
                source="console",
            )
        )
        await view.drive(view.verbs.record("message.publish", made.id, {"queue": made.queue}))
        return view.done(f"Published {made.id}.", f"messages/{quoted(made.id)}")

    example = "" if view.form else await _example(view, queue)
    return Ask(
        title=f"Publish to {queue}", button="Publish", do=do, template="queue_publish.html",
        values={"payload": view.form.get("payload", example)}, back=f"queues/{quoted(queue)}",
    )  # fmt: skip


async def _example(view: View, queue: str) -> str:
    """A payload that the queue's schema takes."""
    schemas: list[Schema] = await view.drive(view.verbs.list_schemas())
    for schema in schemas:
        if schema.applies_to(queue):
            try:
                return pretty(await view.drive(view.verbs.example_of_schema(schema.name)))
            except TampuError:  # none can be made
                continue
    return '{\n  "to": "ada@example.org"\n}'


@page.act("/queues/{queue}/purge")
async def purge(view: View, queue: str) -> Ask:
    any_queue(queue)
    view.need("operate", queue)
    stats: Stats = await view.drive(view.verbs.stats(queue))
    given = view.form.get("state") or view.query.get("state") or "dead"
    if given not in {str(state) for state in State if state is not State.LEASED}:
        raise InvalidState("messages in this state cannot be purged", field="state", hint="running ones: cancel them")
    count = stats.counts.get(State(given), 0)

    async def do() -> Response:
        gone = await view.drive(view.verbs.purge(queue, state=given))
        await charge_moved(view.request, view.caller, gone)
        return view.done(f"Removed {plural(gone, given + ' message')} of {queue}.", f"queues/{quoted(queue)}")

    return Ask(
        title=f"Purge {plural(count, given + ' message')} of {queue}?", danger=True,
        text="They are removed for good. This cannot be undone.", button=f"Purge {count:,}", do=do,
        template="queue_purge.html", values={"state": given}, back=f"queues/{quoted(queue)}",
    )  # fmt: skip


@page.act("/queues/{queue}/remove")
async def remove(view: View, queue: str) -> Ask:
    any_queue(queue)
    view.need("operate", queue)
    stats: Stats = await view.drive(view.verbs.stats(queue))
    ended = sum(stats.counts.get(state, 0) for state in TERMINAL)

    async def do() -> Response:
        if view.form.get("name") != queue:
            raise InvalidMessage("type the name of the queue to remove it", field="name")
        gone = await view.drive(view.verbs.remove_queue(queue, force=True))
        await charge_moved(view.request, view.caller, gone)
        return view.done(f"Removed {queue} with {plural(gone, 'message')}.", "queues")

    return Ask(
        title=f"Remove the queue {queue}?", danger=True, button="Remove it", do=do, template="queue_remove.html",
        text=f"Its settings, {plural(stats.depth, 'waiting message')} and {ended:,} that have ended go for good.",
        back=f"queues/{quoted(queue)}",
    )  # fmt: skip
