"""Moving messages: cancel, free, replay, purge."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from fastapi import APIRouter, Response

from tampu.broker import validate
from tampu.model.errors import NotFound
from tampu.model.outcome import Outcome
from tampu.server.auth.grants import Who
from tampu.server.http.message_handlers import outcome_view
from tampu.server.http.openapi import doc
from tampu.server.http.request import HttpRequest
from tampu.server.routes.common import Asks, Caller, QueueName, answer
from tampu.wire import bodies
from tampu.wire.messages import message_view

router = APIRouter(prefix="/v1", tags=["operating"])
_IDS: dict[str, Any] = doc(bodies.Outcomes, bodies.Ids, more=(409, 507))


async def _each(request: HttpRequest, who: Who, permissions: tuple[str, ...], act: Callable[..., Any]) -> Response:
    """Do something to messages by id; those of queues the caller has nothing to say in are not there."""
    if not any(who.somewhere(permission) for permission in permissions):
        who.need_somewhere(permissions[0])
    asked: bodies.Ids = await request.read(bodies.IDS)
    await request.spend(who, request.check_batch(asked.ids, "ids"))
    ids = [validate.id_text(id) for id in asked.ids]
    request.subject.add(ids=ids)
    hidden: set[str] = set()
    if not any(who.everywhere(permission) for permission in permissions):
        hidden = await asyncio.to_thread(hidden_of, request, who, permissions, ids)
    outcomes: list[Outcome] = await request.node.drive(act(*(id for id in ids if id not in hidden)))
    told = iter(outcomes)
    return answer(
        request,
        bodies.Outcomes(
            [
                outcome_view(
                    Outcome(id, None, NotFound(f"no message {id}", field="id")) if id in hidden else next(told)
                )
                for id in ids
            ]
        ),
    )


async def charge_moved(request: HttpRequest, who: Who, moved: int) -> None:
    """What was moved, beside the one that is paid for; never more than a burst, or a purge would cost a day."""
    await request.charge(who, min(moved, request.node.limits.most(who, moved)) - 1)


def hidden_of(request: HttpRequest, who: Who, permissions: tuple[str, ...], ids: list[str]) -> set[str]:
    hidden = set()
    for id in set(ids):
        message = request.node.core.engine.get(who.tenant, id)
        if message is not None and not any(who.may(permission, message.queue) for permission in permissions):
            hidden.add(id)
    return hidden


@router.post("/messages/cancel", operation_id="cancel", **_IDS)
async def cancel(request: Asks, who: Caller) -> Response:
    """End messages that wait; a leased one is only asked to stop."""
    return await _each(request, who, ("operate",), request.node.verbs(who.tenant).cancel)


@router.post("/messages/free", operation_id="free", **_IDS)
async def free(request: Asks, who: Caller) -> Response:
    """Let held messages go on."""
    return await _each(request, who, ("operate", "review"), request.node.verbs(who.tenant).free)


@router.post(
    "/queues/{queue}/replay",
    operation_id="replay",
    **doc(bodies.ReplayedView, bodies.Replay, more=(404, 409, 507)),
)
async def replay(queue: QueueName, request: Asks, who: Caller) -> Response:
    """Dead messages run again, from attempt 0, with the same id."""
    who.need("operate", queue)
    asked: bodies.Replay = await request.read(bodies.REPLAY)
    await request.spend(who, 1)
    done = await request.node.drive(
        request.node.verbs(who.tenant).replay(
            queue, ids=asked.ids, where=asked.where, limit=asked.limit, dry_run=asked.dry_run
        )
    )
    await charge_moved(request, who, 0 if done.dry_run else len(done.messages))
    request.subject.add(ids=(m.id for m in done.messages))
    form = request.response_media
    return answer(
        request,
        bodies.ReplayedView(
            [message_view(m, form) for m in done.messages], [outcome_view(o) for o in done.outcomes], done.dry_run
        ),
    )


@router.post("/queues/{queue}/purge", operation_id="purge", **doc(bodies.Count, bodies.Purge, more=(404, 409, 507)))
async def purge(queue: QueueName, request: Asks, who: Caller) -> Response:
    """Remove all messages of some states for good; how many."""
    who.need("operate", queue)
    asked: bodies.Purge = await request.read(bodies.PURGE)
    await request.spend(who, 1)
    steps = request.node.verbs(who.tenant).purge(queue, state=asked.states, dry_run=asked.dry_run)
    count: int = await request.node.drive(steps)
    await charge_moved(request, who, 0 if asked.dry_run else count)
    return answer(request, bodies.Count(count))
