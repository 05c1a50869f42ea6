"""One message: its timeline, attempts, payload, result and story; and what an operator may do with it."""

from __future__ import annotations

import contextlib
import hashlib
from typing import Any

import msgspec
from fastapi import Response

from tampu.broker import validate
from tampu.broker.core import Steps
from tampu.broker.store import AllVerbs
from tampu.engines import port
from tampu.model.errors import InvalidMessage, InvalidState, NotFound, TampuError
from tampu.model.journal import Transition
from tampu.model.message import JSON, Message, State
from tampu.model.outcome import Outcome
from tampu.model.reviews import HOLD
from tampu.model.states import LIVE, WAITING
from tampu.model.times import SECOND
from tampu.model.trace import Trace
from tampu.server.console import journal_pages, render
from tampu.server.console.page import Ask, Page, View, redirect
from tampu.server.console.parts import address, json_field, quoted
from tampu.server.routes.messages import find

page = Page("messages", "Messages", listed=False)
_WAYS = ("pretty", "raw", "hex")
_STORY = 100


async def _find(view: View, id: str, permission: str = "view") -> Message:
    message = await find(view.request, view.caller, id, "view")
    view.need(permission, message.queue)
    return message


@page.show("/messages/{id}")
async def show(view: View, id: str) -> Response:
    try:
        message = await _find(view, id)
    except (NotFound, InvalidMessage):  # not the id of a message
        if await _is_story(view, id):
            return redirect(view.root + address("messages", correlation=id))
        raise
    transitions, whole = await view.read(journal_pages.timeline, view.engine, message)
    way = view.query.get("as", "pretty")
    note = await view.drive(view.verbs.read_note(message.id)) if message.state is State.LEASED else None
    story = await _story(view, message)
    return await view.html(
        "message.html",
        message=message,
        way=way if way in _WAYS else "pretty",
        ways=_WAYS,
        payload=render.payload_as(message.raw, message.content_type, way),
        result=None if message.result_raw is None else render.value(message.result),
        note=None if note is None or message.progress is not None else render.value(note),
        steps=_steps(transitions),
        whole=whole,
        story=story,
        review=message.review,
        acts=_acts(view, message),
    )


async def _is_story(view: View, id: str) -> bool:
    with contextlib.suppress(TampuError):
        found = await view.read(view.engine.correlated, view.caller.tenant, validate.text(id, "id", 256), _STORY)
        return any(view.may("view", message.queue) for message in found)
    return False


async def _story(view: View, message: Message) -> Trace | None:
    """The messages that were published because of the same thing, if there are others."""
    with contextlib.suppress(NotFound):
        found = await view.read(lambda: view.request.server.core.drive(view.verbs.trace(message.id, limit=_STORY)))
        seen = [one for one in found if view.may("view", one.queue)]
        known = {one.id for one in seen}
        shown = [one if one.cause in known else msgspec.structs.replace(one, cause=None) for one in seen]
        if len(shown) > 1:
            return Trace(found.correlation_id, shown, found.complete)
    return None


def _steps(transitions: list[Transition]) -> list[tuple[Transition, float | None]]:
    """Each transition with the seconds until the next one."""
    return [
        (one, None if n + 1 == len(transitions) else max(0, transitions[n + 1].at_us - one.at_us) / SECOND)
        for n, one in enumerate(transitions)
    ]


def _acts(view: View, message: Message) -> list[tuple[str, str]]:
    """(path, text) of what the caller may do with it now."""
    found = []
    if view.may("operate", message.queue):
        if message.state is State.DEAD:
            found += [("replay", "Replay"), ("edit", "Edit and replay")]
        if message.state is State.HELD and message.body.review is None:
            found.append(("free", "Free"))
        if message.state in LIVE and not message.cancel_requested:
            found.append(("cancel", "Ask to stop" if message.state is State.LEASED else "Cancel"))
        if message.state in WAITING and message.body.review is None:
            found.append(("reject", "Reject"))
        if message.state is State.DEAD:
            found.append(("purge", "Purge"))
    if message.reason == HOLD and message.state is State.HELD:
        found.append(("review", "Review"))
    return found


def _check(outcomes: list[Outcome]) -> None:
    for outcome in outcomes:
        if outcome.error is not None:
            raise outcome.error


def _back(message: Message) -> str:
    return f"messages/{quoted(message.id)}"


@page.act("/messages/{id}/cancel")
async def cancel(view: View, id: str) -> Ask:
    message = await _find(view, id, "operate")
    runs = message.state is State.LEASED

    async def do() -> Response:
        _check(await view.drive(view.verbs.cancel(message.id)))
        return view.done("Its worker is asked to stop." if runs else "Cancelled.", _back(message))

    return Ask(
        title="Ask its worker to stop?" if runs else "Cancel this message?", danger=True,
        text=f"{message.worker or 'Its worker'} runs it now; the message is cancelled when the task stops."
        if runs else "It will not be delivered.",
        button="Ask to stop" if runs else "Cancel the message", do=do, back=_back(message),
    )  # fmt: skip


@page.act("/messages/{id}/free")
async def free(view: View, id: str) -> Ask:
    message = await _find(view, id, "operate")

    async def do() -> Response:
        _check(await view.drive(view.verbs.free(message.id)))
        return view.done("It is free.", _back(message))

    return Ask(
        title="Free this message?", text=f"It is held ({message.reason or 'no reason given'}) and becomes ready.",
        button="Free", do=do, back=_back(message),
    )  # fmt: skip


@page.act("/messages/{id}/replay")
async def replay(view: View, id: str) -> Ask:
    message = await _find(view, id, "operate")

    async def do() -> Response:
        done = await view.drive(view.verbs.replay(message.queue, ids=[message.id]))
        _check(done.outcomes)
        return view.done("It is ready again, from attempt 0.", _back(message))

    return Ask(
        title="Replay this message?", text=f"It runs again in {message.queue}, from attempt 0, with the same id.",
        button="Replay", do=do, back=_back(message),
    )  # fmt: skip


@page.act("/messages/{id}/reject")
async def reject(view: View, id: str) -> Ask:
    message = await _find(view, id, "operate")

    async def do() -> Response:
        if message.body.review is not None:
            raise InvalidState("it waits for a review", hint="decide the review")
        reason = validate.text(view.form.get("reason", "rejected"), "reason", 200)
        _check(await view.drive(_reject(view.verbs, message.id, reason)))
        return view.done("It is dead now.", _back(message))

    return Ask(
        title="Reject this message?", text="It becomes a dead letter without being delivered; it can be replayed.",
        button="Reject", danger=True, do=do, template="message_reject.html", back=_back(message),
    )  # fmt: skip


def _reject(verbs: AllVerbs, id: str, reason: str) -> Steps[list[Outcome]]:
    yield from verbs.record_ids("message.reject", [id])
    outcomes: list[Outcome] = yield port.Cancel(verbs.tenant, [id], dead=reason, actor=verbs.actor.name)
    return outcomes


@page.act("/messages/{id}/purge")
async def purge(view: View, id: str) -> Ask:
    message = await _find(view, id, "operate")

    async def do() -> Response:
        verbs = view.verbs.limited_to(view.caller.patterns("operate"))
        done = await view.drive(verbs.purge_dead([message.id]))
        if not done.count:
            raise InvalidState("it was not removed", hint="it is not dead any more, or a legal hold covers it")
        return view.done(f"Removed {message.id}.", f"queues/{quoted(message.queue)}")

    return Ask(
        title="Purge this message?", text="It is removed for good. This cannot be undone.", danger=True,
        button="Purge", do=do, back=_back(message),
    )  # fmt: skip


@page.act("/messages/{id}/edit")
async def edit(view: View, id: str) -> Ask:
    """A new message with another payload, and the dead one goes: the same edit twice makes one message."""
    message = await _find(view, id, "operate")
    view.need("publish", message.queue)
    await view.request.server.load_settings(view.caller.tenant, message.queue)
    if message.content_type != JSON:
        raise InvalidState(f"its payload is {message.content_type}, not JSON", hint="replay it as it is")

    async def do() -> Response:
        if message.state is not State.DEAD:
            raise InvalidState(f"the message is {message.state}, not dead")
        payload: Any = json_field(view.form, "payload")
        digest = hashlib.sha256(msgspec.json.encode(payload)).hexdigest()[:24]
        body = message.body
        made = await view.drive(
            view.verbs.publish(
                message.queue, payload, type=view.form.get("type", body.type) or None, priority=body.priority,
                labels=body.labels, headers=body.headers, key=body.key, group=body.group,
                correlation_id=body.correlation_id or message.id, causation_id=message.id, source="console",
                max_attempts=body.own_max_attempts, idempotency_key=f"edit:{message.id}:{digest}",
            )
        )  # fmt: skip
        await view.drive(view.verbs.record("message.edit", message.id, {"as": made.id}))
        verbs = view.verbs.limited_to(view.caller.patterns("operate"))
        gone = await view.drive(verbs.purge_dead([message.id]))
        what = f"Published with the new payload in place of {message.id}."
        if not gone.count:
            why = "a legal hold covers it, or it is not dead any more"
            what = f"Published with the new payload. {message.id} stays: {why}."
        return view.done(what, f"messages/{quoted(made.id)}")

    return Ask(
        title="Edit and replay", button="Publish it", do=do, template="message_edit.html",
        text="A new message with this payload takes its place; the dead one is removed. It keeps type, labels and key.",
        values={
            "payload": view.form.get("payload") or render.payload_as(message.raw, JSON, "pretty"),
            "message": message,
        },
        back=_back(message),
    )  # fmt: skip


@page.show("/messages/{id}/review")
async def review(view: View, id: str) -> Response:
    return redirect(view.root + f"reviews/{quoted(id)}")
